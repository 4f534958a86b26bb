"""The shipped tiny models: loading them, prompts, and what they greedily write."""

from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen2ForCausalLM

from verl_trgrpo.tasks.knights_and_knaves.puzzles import puzzle_prompt


def load(directory: Path):
    """Return tokenizer and model (fp32) of a checkpoint directory."""
    model = Qwen2ForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return AutoTokenizer.from_pretrained(directory), model.eval()


def prompt_text(tokenizer, puzzle) -> str:
    """Return the text that the puzzle model continues."""
    return tokenizer.apply_chat_template(puzzle_prompt(puzzle, terse=True), tokenize=False, add_generation_prompt=True)


@torch.no_grad()
def continued(tokenizer, model, texts, max_tokens, stops=()) -> list[str]:
    """Return what the model greedily writes after each text."""
    inputs = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False)
    ends = [tokenizer.eos_token_id, *map(tokenizer.convert_tokens_to_ids, stops)]
    output = model.generate(**inputs, do_sample=False, max_new_tokens=max_tokens, eos_token_id=ends)
    return tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


@torch.no_grad()
def sampled_probs(tokenizer, model, texts, max_tokens) -> torch.Tensor:
    """Return the probability of every token of a sampled response to each text, one behind the other."""
    inputs = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False)
    found = model.generate(
        **inputs, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=max_tokens, output_scores=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    log_prob = model.compute_transition_scores(found.sequences, found.scores, normalize_logits=True)
    tokens = found.sequences[:, inputs["input_ids"].shape[1] :]
    ended = (tokens == tokenizer.eos_token_id).cumsum(1)
    return log_prob[ended - (tokens == tokenizer.eos_token_id).long() == 0].exp()
