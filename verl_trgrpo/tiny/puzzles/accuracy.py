"""Accuracy of a tiny model on puzzles that its warm start never saw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from verl_trgrpo.tasks.knights_and_knaves.prompts import format_solution
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle, generate_puzzles
from verl_trgrpo.tasks.knights_and_knaves.reward import score_knights_and_knaves
from verl_trgrpo.tiny.puzzles.demonstrations import WarmStartPuzzles
from verl_trgrpo.tiny.puzzles.puzzle_texts import CAREFUL_START, prompt_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

MAX_RESPONSE_TOKENS = 176


def load(directory: Path) -> tuple[PreTrainedTokenizerBase, Qwen2ForCausalLM]:
    """Return tokenizer and model of a checkpoint directory, the weights as fp32."""
    import torch
    from transformers import AutoTokenizer, Qwen2ForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(directory)
    return tokenizer, Qwen2ForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


def greedy_responses(
    tokenizer: PreTrainedTokenizerBase,
    model: Qwen2ForCausalLM,
    puzzles: Sequence[Puzzle],
    start: str = "",
    max_tokens: int = MAX_RESPONSE_TOKENS,
) -> list[str]:
    """Return the greedy response to each puzzle: `start`, if given, and at most `max_tokens` more tokens."""
    import torch

    texts = [prompt_text(tokenizer, puzzle) + start for puzzle in puzzles]
    inputs = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False)
    with torch.no_grad():
        # The annotation of `self` in transformers' generate does not admit its own models.
        output = model.generate(**inputs, do_sample=False, max_new_tokens=max_tokens)  # type: ignore[misc]
    return [
        start + text
        for text in tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    ]


def is_correct(response: str, puzzle: Puzzle) -> bool:
    """Return whether the reward counts `response` as right."""
    return score_knights_and_knaves(response, format_solution(puzzle.names, puzzle.solution)).acc == 1


def measure_accuracy(
    directory: Path, count: int, seed: int, sizes: Sequence[int] = (2, 3)
) -> dict[str, dict[str, float]]:
    """Return greedy accuracies of a checkpoint on `count` held-out puzzles of each size.

    The result maps ``2ppl``, ``3ppl``, ... to ``{"greedy": a, "careful": b}``; ``careful`` is the accuracy of responses that
    are made to begin with reasoning.
    """
    tokenizer, model = load(directory)
    result = {}
    for n_people in sizes:
        puzzles = list(generate_puzzles(n_people, count, seed, exclude=WarmStartPuzzles()))
        # A fourth person doubles the truth table.
        max_tokens = MAX_RESPONSE_TOKENS * (1 if n_people < 4 else 2)
        result[f"{n_people}ppl"] = {
            name: sum(map(is_correct, greedy_responses(tokenizer, model, puzzles, start, max_tokens), puzzles)) / count
            for name, start in (("greedy", ""), ("careful", CAREFUL_START))
        }
    return result
