"""Responses before and after training: the same prompts at the first and the last validation that veRL dumped."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from verl_trgrpo.runs.responses import Response, dump_files, read_responses

VERDICTS = {True: "right", False: "wrong", None: "not scored"}
# Wanted first; the others are there so that nobody sees successes only.
KINDS = (("wrong", "right"), ("right", "wrong"), ("wrong", "wrong"), ("right", "right"))


class Pair(NamedTuple):
    """The responses to one prompt at the first and the last step."""

    before: Response
    after: Response

    @property
    def kind(self) -> tuple[str, str]:
        """Verdicts before and after."""
        return VERDICTS[self.before.right], VERDICTS[self.after.right]


class Samples(NamedTuple):
    """What is shown of one run.

    Args:
        name: whose they are.
        first, last: the steps.
        prompts: number of prompts that both validations have.
        counts: of them by kind, as "wrong to right".
        pairs: those shown.
    """

    name: str
    first: int
    last: int
    prompts: int
    counts: dict[str, int]
    pairs: list[Pair]


def read_samples(directory: Path, most: int, name: str = "") -> Samples | None:
    """Read the first and the last of veRL's validation dumps.

    Args:
        directory: with ``STEP.jsonl``.
        most: so many prompts at most.
        name: whose they are.

    Returns:
        the samples; None when there are not two steps with a common prompt. Of several responses to one prompt the first
        counts.

    Raises:
        ValueError: for a damaged line.
    """
    files = dump_files(directory)
    if len(files) < 2:
        return None
    first, last = min(files), max(files)
    before, after = (
        {(response.prompt, response.truth): response for response in reversed(read_responses(files[step]))}
        for step in (first, last)
    )
    pairs = [Pair(before[key], after[key]) for key in reversed(before) if key in after]
    if not pairs:
        return None
    kinds = [pair.kind for pair in pairs]
    counts = {f"{old} to {new}": kinds.count((old, new)) for old, new in KINDS if (old, new) in kinds}
    return Samples(name, first, last, len(pairs), counts, _chosen(pairs, most))


def _chosen(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """Every other one a prompt that was learned, the rest of the other kinds in turn; within a kind drawn by chance."""
    drawn = random.Random(0).sample(list(pairs), len(pairs))
    groups = [[pair for pair in drawn if pair.kind == kind] for kind in KINDS]
    groups.append([pair for pair in drawn if pair.kind not in KINDS])
    taken = [0] * len(groups)
    turns = itertools.cycle((0, 1, 0, 2, 0, 3, 0, 4))
    while sum(taken) < min(most, len(pairs)):
        turn = next(turns)
        taken[turn] = min(taken[turn] + 1, len(groups[turn]))
    return [pair for group, count in zip(groups, taken, strict=True) for pair in group[:count]]
