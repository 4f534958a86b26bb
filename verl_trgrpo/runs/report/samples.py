"""Responses before and after training: the same prompts at the first and the last validation that veRL dumped.

Where there is one validation, its responses alone.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from verl_trgrpo.runs.responses import Response, dump_files, read_responses

VERDICTS = {True: "right", False: "wrong", None: "not scored"}


class Pair(NamedTuple):
    """The responses to one prompt at the first step, None where there is one step, and at the last."""

    before: Response | None
    after: Response

    @property
    def kind(self) -> str:
        """Verdicts before and after, such as "wrong to right"; of one step "right"."""
        verdicts = [VERDICTS[response.right] for response in (self.before, self.after) if response]
        return " to ".join(verdicts)


class Samples(NamedTuple):
    """What is shown of one run.

    Args:
        name: whose they are.
        first, last: the steps; the same where there is one.
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

    None without a dump, and when two have no prompt in common. Of several responses to one prompt the first counts. Raises
    ValueError for a damaged line.
    """
    files = dump_files(directory)
    if not files:
        return None
    first, last = min(files), max(files)
    after = _by_prompt(files[last])
    if first == last:
        pairs = [Pair(None, response) for response in after.values()]
    else:
        pairs = [Pair(response, after[key]) for key, response in _by_prompt(files[first]).items() if key in after]
    if not pairs:
        return None
    counts = dict(Counter(pair.kind for pair in pairs).most_common())
    return Samples(name, first, last, len(pairs), counts, random.Random(0).sample(pairs, min(most, len(pairs))))


def _by_prompt(path: Path) -> dict[tuple[str, str], Response]:
    """The first response by prompt and ground truth."""
    found: dict[tuple[str, str], Response] = {}
    for response in read_responses(path):
        found.setdefault((response.prompt, response.truth), response)
    return found
