"""Demonstrations of searching for the warm start of the tiny model: careful, lazy and careless ones.

A careful one searches as often as the question takes and is right. A lazy one answers a question that takes two
searches after the first. A careless one guesses. Reinforcement learning has to select.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from verl_trgrpo.retrieval.backend import Backend
from verl_trgrpo.tasks.search_qa.agent.tags import observation_frame, passages_text
from verl_trgrpo.tiny.search.world import PROFESSIONS, Question, World

TOPK = 2

# How a careful response begins: it searches.
CAREFUL_START = "<think>search</think><search>"


@dataclass(frozen=True)
class Segment:
    """A piece of a trajectory and whether the model wrote it; observations are not learned."""

    text: str
    by_model: bool


def prompt_messages(question: Question) -> list[dict[str, str]]:
    """Return the chat messages: the question alone, the tiny model needs no instructions."""
    return [{"role": "user", "content": question.text}]


def demonstrate(question: Question, world: World, backend: Backend, careful: bool, rng: random.Random) -> list[Segment]:
    """Return a whole trajectory after the prompt.

    Args:
        question: of `world`.
        world: where wrong answers are drawn from.
        backend: an index of the world's documents; observations are what it really finds.
        careful: search as often as needed; else guess, or where two searches are needed perhaps stop after one.
        rng: draws the kind of carelessness and the guesses.
    """
    if not careful and (len(question.path) == 1 or rng.random() < 0.5):
        return [Segment(f"<think>guess</think><answer>{_guess(question, world, rng)}</answer>", True)]
    path = question.path if careful else question.path[:1]
    segments = []
    for title in path:
        segments.append(Segment(f"<think>search</think><search>{title}</search>", True))
        segments.append(Segment(observed(backend, title), False))
    answer = question.answer if careful else world.people[question.path[0]][1]
    segments.append(Segment(f"<think>found</think><answer>{answer}</answer>", True))
    return segments


def observed(backend: Backend, query: str) -> str:
    """Return the observation after a search, as the agent loop writes it."""
    opening, closing = observation_frame()
    return opening + passages_text(backend.search([query], TOPK)[0]) + closing


def _guess(question: Question, world: World, rng: random.Random) -> str:
    if question.answer in PROFESSIONS:
        return rng.choice(PROFESSIONS)
    pool: Sequence[str] = [*world.towns] if len(question.path) == 1 else [*{*world.towns.values()}]
    return rng.choice(sorted(pool))
