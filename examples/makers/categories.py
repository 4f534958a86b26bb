"""Which of three words is of a kind, with answers of about ten tokens: a task that a small language model learns in minutes.

Made for studies/comparisons/small_lm_categories.yaml: a prompt has about 33 tokens and an answer eight, so that a step of the
single-file trainer takes seconds of one core. The model knows what the words mean; the warm start teaches it the form of an
answer, and to choose nearly at random. The words to test with are others than those to train with, warm start included.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_trgrpo.data.rows import arrow_schema, build_row
from verl_trgrpo.tasks.data_set import DataSet

# Rows of the files; demonstrations of the warm start.
TRAIN, TEST, WARM_START = 1024, 128, 480
# Of each kind, the last so many words are held out.
HELD_OUT_WORDS = 4
INSTRUCTION = 'End with "Answer: X".'

_KINDS = {
    "an animal": "dog cat horse cow pig sheep lion bear wolf mouse fox rabbit",
    "a food": "bread cheese rice soup cake apple egg meat butter pizza banana corn",
    "a colour": "red blue green yellow black brown pink purple white orange grey gold",
    "a part of the body": "hand foot nose ear eye arm leg knee head neck finger mouth",
    "a vehicle": "car bus train boat truck ship plane bike taxi van ferry tram",
    "a relative": "mother father sister brother uncle aunt son daughter cousin wife husband grandmother",
    "a country": "France Spain China Japan Italy India Egypt Germany Canada Brazil Mexico Russia",
    "a piece of clothing": "shirt hat coat shoe sock dress glove jacket cap skirt belt boot",
}
_QUESTIONS = ("Which is {kind}: {words}?", "{words}: which one is {kind}?", "Find {kind}: {words}.")


@dataclass(frozen=True)
class Choice:
    """A question with three words, one of which is the answer."""

    question: str
    words: tuple[str, ...]
    answer: str


def choices(name: str, count: int) -> list[Choice]:
    """Return `count` different questions of ``train``, ``test`` or ``warm_start``."""
    rng, kinds = random.Random(f"categories/{name}"), {kind: words.split() for kind, words in _KINDS.items()}
    part = slice(-HELD_OUT_WORDS, None) if name == "test" else slice(-HELD_OUT_WORDS)
    found: dict[str, Choice] = {}
    while len(found) < count:
        kind, *others = rng.sample([*kinds], 3)
        answer, *wrong = (rng.choice(kinds[one][part]) for one in (kind, *others))
        words = rng.sample([answer, *wrong], 3)
        listed = f"{words[0]}, {words[1]} or {words[2]}"
        question = rng.choice(_QUESTIONS).format(kind=kind, words=listed)
        found.setdefault(question, Choice(question, tuple(words), answer))
    return [*found.values()]


def prompt_messages(choice: Choice) -> list[dict[str, str]]:
    """Return the chat messages that ask for the answer; a system message spares the long one of the chat template."""
    return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": choice.question}]


def build_dataset(directory: Path) -> bool:
    """Write ``train.parquet``, ``test.parquet`` and a manifest unless they are there; return whether they were built."""
    data_set = DataSet(
        directory,
        builder="categories",
        made_from={"test": TEST, "train": TRAIN},
        command=["examples/makers/warm_start.py", "categories"],
        replace_other=True,
    )
    if data_set.is_there():
        return False
    data_set.write(_rows(), arrow_schema([pa.field("question", pa.string())]))
    return True


def _rows() -> dict[str, list[dict[str, Any]]]:
    return {
        split: [
            build_row(
                data_source="math",
                prompt=prompt_messages(choice),
                ability="words",
                ground_truth=choice.answer,
                extra_info={"question": choice.question},
            )
            for choice in choices(split, count)
        ]
        for split, count in (("train", TRAIN), ("test", TEST))
    }
