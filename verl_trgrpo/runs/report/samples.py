"""Responses before and after training: the same prompts at the first and the last validation that veRL dumped."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from verl_trgrpo.runs.responses import Response, dump_files, read_responses

VERDICTS = {True: "right", False: "wrong", None: "not scored"}


class Pair(NamedTuple):
    """The responses to one prompt at the first and the last step."""

    before: Response
    after: Response

    @property
    def kind(self) -> str:
        """Verdicts before and after, such as "wrong to right"."""
        return f"{VERDICTS[self.before.right]} to {VERDICTS[self.after.right]}"


class Samples(NamedTuple):
    """What is shown of one run.

    Args:
        name: whose they are.
        first, last: the steps.
        prompts: number of prompts that both validations have.
        counts: of them by kind.
        pairs: those shown, drawn by chance.
    """

    name: str
    first: int
    last: int
    prompts: int
    counts: dict[str, int]
    pairs: list[Pair]


def read_samples(directory: Path, name: str = "", most: int = 4) -> Samples | None:
    """Read the first and the last of veRL's validation dumps, ``STEP.jsonl``, and `most` prompts of them at most.

    None when there are not two steps with a common prompt. Of several responses to one prompt the first counts. Raises
    ValueError for a damaged line.
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
    counts = dict(Counter(pair.kind for pair in pairs).most_common())
    return Samples(name, first, last, len(pairs), counts, random.Random(0).sample(pairs, min(most, len(pairs))))
