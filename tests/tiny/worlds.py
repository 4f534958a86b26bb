"""Puzzles that the warm start never shows, truths worked out independently of the package, and what a model writes."""

import torch

from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle, generate_puzzles
from verl_trgrpo.tiny.puzzles import WARM_START


def unseen_puzzles(n_people: int, count: int, seed: int) -> list[Puzzle]:
    return list(generate_puzzles(n_people, count, seed, exclude=WARM_START))


@torch.no_grad()
def continued(tokenizer, model, texts, max_tokens, stops=()) -> list[str]:
    """What the model greedily writes behind each text."""
    inputs = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False)
    ends = [tokenizer.eos_token_id, *map(tokenizer.convert_tokens_to_ids, stops)]
    output = model.generate(**inputs, do_sample=False, max_new_tokens=max_tokens, eos_token_id=ends)
    return tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
