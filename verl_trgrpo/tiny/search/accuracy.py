"""Exact match of a tiny searching model on questions about a world that its warm start never saw."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from verl_trgrpo.retrieval.backend import Backend
from verl_trgrpo.tasks.search_qa.agent.tags import STOP_STRINGS, observation_frame, passages_text, read_action
from verl_trgrpo.tiny.puzzles.accuracy import load
from verl_trgrpo.tiny.search.demonstrations import CAREFUL_START, TOPK, prompt_messages
from verl_trgrpo.tiny.search.training import open_index
from verl_trgrpo.tiny.search.world import Question, make_world

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

MAX_TURNS = 3
MAX_TURN_TOKENS = 48


def measure_accuracy(directory: Path, count: int, seed: int) -> dict[str, dict[str, float]]:
    """Return greedy exact match of a checkpoint on `count` questions each that take one and two searches.

    The result maps ``one search`` and ``two searches`` to ``{"greedy": a, "careful": b}``; ``careful`` is the exact
    match of responses that are made to search as often as the question takes.
    """
    tokenizer, model = load(directory)
    world = make_world("training", seed)
    rng = random.Random(f"accuracy/{seed}")
    people = rng.sample([*world.people], count)
    questions = {
        "one search": [rng.choice(world.questions(name)[:2]) for name in people],
        "two searches": [world.questions(name)[2] for name in people],
    }
    with tempfile.TemporaryDirectory() as place:
        backend = open_index(world, Path(place))
        return {
            kind: {
                name: sum(
                    answer(tokenizer, model, backend, q, len(q.path) if careful else 0) == q.answer
                    for q in questions[kind]
                )
                / count
                for name, careful in (("greedy", False), ("careful", True))
            }
            for kind in questions
        }


def answer(
    tokenizer: PreTrainedTokenizerBase, model: Qwen2ForCausalLM, backend: Backend, question: Question, searches: int = 0
) -> str | None:
    """Return the model's greedy answer, or None; it is made to begin its first `searches` turns with a search."""
    prompt = tokenizer.apply_chat_template(prompt_messages(question), tokenize=False, add_generation_prompt=True)
    token_ids: list[int] = tokenizer.encode(f"{prompt}")
    opening, closing = observation_frame()
    for turn in range(MAX_TURNS):
        start: list[int] = tokenizer.encode(CAREFUL_START) if turn < searches else []
        written = start + _generate(tokenizer, model, token_ids + start)
        action = read_action(str(tokenizer.decode(written, skip_special_tokens=True)))
        if action.kind == "answer":
            return action.content
        if action.kind == "malformed":
            return None
        found = passages_text(backend.search([action.content], TOPK)[0])
        token_ids = token_ids + written + tokenizer.encode(opening + found + closing)
    return None


def _generate(tokenizer: PreTrainedTokenizerBase, model: Qwen2ForCausalLM, token_ids: list[int]) -> list[int]:
    import torch

    stops = [tokenizer.eos_token_id, *map(tokenizer.convert_tokens_to_ids, STOP_STRINGS)]
    inputs = torch.tensor([token_ids])
    with torch.no_grad():
        # The annotation of `self` in transformers' generate does not admit its own models.
        output = model.generate(  # type: ignore[misc]
            input_ids=inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=MAX_TURN_TOKENS,
            eos_token_id=stops,
        )  # fmt: skip
    return output[0, len(token_ids) :].tolist()
