"""Knights-and-Knaves puzzles with two people for a small language model, in English and the paper's tags.

There are only 95 different puzzles with two people. The warm start has one half, and of the other one each puzzle belongs to
the test or the train file; within a file puzzles come back with other names, another order and other words.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, product

from verl_trgrpo.data.write import DataFile
from verl_trgrpo.tasks.knights_and_knaves.logic import LEAVES, Statement, evaluate
from verl_trgrpo.tasks.knights_and_knaves.puzzles import (
    Puzzle,
    format_response,
    generate_puzzles,
    joined,
    puzzle_prompt,
    quiz_text,
)
from verl_trgrpo.tasks.knights_and_knaves.rows import kk_schema, puzzle_row
from verl_trgrpo.tiny.puzzles import HELD_OUT, WARM_START, vary
from verl_trgrpo.tiny.training import Demonstration, Segment

TEST, TRAIN, DEMONSTRATIONS = 256, 1024, 2400
PEOPLE, TEST_PUZZLES, HALF = 2, 20, 40

HUNCH = 0.4
"""Share of the demonstrations that state a feeling and a random answer: what reinforcement learning is to turn away from."""

SLIP = 0.1
"""Share of the judgements of a demonstration that are wrong."""

_OPENINGS = ("", "", "", "Let's see. ", "OK. ", "Let me check. ", "Step by step: ", "There are four cases. ")
_SUPPOSE = ("Suppose {}.", "Say {}.", "Assume {}.", "Try this: {}.", "If {}:", "What if {}?", "First guess: {}.")
_AGAIN = ("Suppose {}.", "Say {} then.", "Now assume {}.", "So try this: {}.", "If {}:", "What if {}?", "Next: {}.")
_ROLES: dict[tuple[bool, ...], tuple[str, ...]] = {
    (True, True): ("both are knights", "{0} and {1} are knights", "both tell the truth"),
    (True, False): ("{0} is a knight and {1} is a knave", "{0} tells the truth and {1} lies", "only {1} lies"),
    (False, True): ("{0} is a knave and {1} is a knight", "{0} lies and {1} tells the truth", "only {0} lies"),
    (False, False): ("both are knaves", "{0} and {1} are knaves", "both lie"),
}
# Of a claim that has parts, their truth comes first.
_CLAIMS = (
    "{name}'s words are {parts}{truth}",
    "{name} says something {parts}{truth}",
    "What {name} says is {parts}{truth}",
    "{name}: {parts}{truth}",
)
_PARTS = ("{}, so ", "{}, that is ", "{}, which makes ")
_FITS = (", which fits.", ", as it should be.", ", fine.", ". Good.", ", and {name} is a {role}.")
_MISFITS = (", but {name} is a {role}.", ", which cannot be.", ". No.", ", a contradiction.", ", so no.")
_HUNCHES = (
    "{} sounds like a {}, I think, and {} like a {}.",
    "My feeling is that {} is a {} and {} a {}.",
    "Probably {} is the {} and {} the {}.",
    "I would guess {}: {}, {}: {}.",
)


# What the files depend on, for their manifest.
ARGUMENTS = {"test": TEST, "train": TRAIN, "people": PEOPLE, "warm_start_puzzles": HALF, "test_puzzles": TEST_PUZZLES}


def warm_start_demonstrations(seed: int) -> list[Demonstration]:
    """Return responses to puzzles of the warm start's half; `seed` chooses puzzles, wordings and mistakes."""
    rng = random.Random(seed)
    puzzles = _variants([*generate_puzzles(PEOPLE, HALF, 0, exclude=HELD_OUT)], rng)
    return [
        Demonstration(puzzle_prompt(puzzle), [Segment(demonstration(puzzle, rng), True)])
        for puzzle in islice(puzzles, DEMONSTRATIONS)
    ]


def demonstration(puzzle: Puzzle, rng: random.Random, hunch: float = HUNCH, slip: float = SLIP) -> str:
    """Return a response to a puzzle with two people: its cases tried in random order up to one that fits, or a hunch.

    `hunch` is the probability of a hunch, `slip` that of each judgement of a claim to be wrong.
    """
    cases = rng.sample([*product((True, False), repeat=PEOPLE)], 2**PEOPLE)
    case, words = cases[0], []
    if rng.random() < hunch:
        parts = [word for name, knight in zip(puzzle.names, case, strict=True) for word in (name, _role(knight))]
        words.append(rng.choice(_HUNCHES).format(*parts))
    else:
        for place, case in enumerate(cases):
            supposed = rng.choice(_ROLES[case]).format(*puzzle.names)
            words.append(rng.choice(_AGAIN if place else _SUPPOSE).format(supposed))
            checks, fits = _checks(puzzle, case, rng, slip)
            words += checks
            if fits:
                break
    return format_response(rng.choice(_OPENINGS) + " ".join(words), puzzle.names, case)


def _checks(puzzle: Puzzle, case: Sequence[bool], rng: random.Random, slip: float) -> tuple[list[str], bool]:
    """Return a sentence for each claim up to the first that does not fit, and whether all fit."""
    sentences = []
    for person in rng.sample(range(PEOPLE), PEOPLE):
        name, knight = puzzle.names[person], case[person]
        truth = evaluate(puzzle.statements[person], case) != (rng.random() < slip)
        parts = _parts(puzzle.statements[person], case)
        shown = rng.choice(_PARTS).format(parts) if parts else ""
        form = rng.choice(_CLAIMS) + rng.choice(_FITS if truth == knight else _MISFITS)
        sentences.append(form.format(name=name, parts=shown, truth=_word(truth), role=_role(knight)))
        if truth != knight:
            return sentences, False
    return sentences, True


def _parts(statement: Statement, case: Sequence[bool]) -> str:
    """Return a composed claim with the truth of its parts in their places, such as ``true or false``; "" for a simple one."""
    operator, *operands = statement
    if operator in LEAVES:
        return ""
    words = [_word(evaluate(operand, case)) for operand in operands]
    return joined(operator, words, terse=operator == "not")


def _word(truth: bool) -> str:
    return "true" if truth else "false"


def _role(knight: bool) -> str:
    return "knight" if knight else "knave"


def _variants(puzzles: Sequence[Puzzle], rng: random.Random) -> Iterator[Puzzle]:
    """Yield variants of puzzles without end, no two with the same words, each puzzle as often as any other."""
    seen: set[str] = set()
    while True:
        for puzzle in puzzles:
            varied = vary(puzzle, rng)
            quiz = quiz_text(varied.names, varied.statements, rng)
            if quiz not in seen:
                seen.add(quiz)
                yield replace(varied, quiz=quiz)


EXTRA_INFO = ("statements",)
SCHEMA = kk_schema(EXTRA_INFO)


def data_files() -> Iterator[DataFile]:
    """Yield the puzzles to test on and to train on, none of which the warm start has seen."""
    held_out = [*generate_puzzles(PEOPLE, HALF, 0, exclude=WARM_START)]
    splits = {"test": (held_out[:TEST_PUZZLES], TEST), "train": (held_out[TEST_PUZZLES:], TRAIN)}
    for split, (puzzles, count) in splits.items():
        variants = islice(_variants(puzzles, random.Random(split)), count)
        yield DataFile(split, [puzzle_row(puzzle, extra_info=EXTRA_INFO) for puzzle in variants])
