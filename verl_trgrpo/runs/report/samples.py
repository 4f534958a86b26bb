"""Responses before and after training: the same prompts at the first and the last validation that veRL dumped."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

VALIDATION = "validation"
# Wanted first; the others are there so that nobody sees successes only.
KINDS = (("wrong", "right"), ("right", "wrong"), ("wrong", "wrong"), ("right", "right"))
_HEAD, _TAIL = 2500, 1500


class Response(NamedTuple):
    """A response: its text (the middle of a long one left out), verdict (right, wrong or not scored) and score."""

    text: str
    verdict: str
    score: float | None


class Pair(NamedTuple):
    """One prompt with its ground truth, and the responses at the first and the last step."""

    prompt: str
    truth: str
    before: Response
    after: Response


class Samples(NamedTuple):
    """What is shown of one run.

    Args:
        first, last: the steps.
        prompts: number of prompts that both validations have.
        counts: of them by kind, as "wrong to right".
        pairs: those shown.
    """

    first: int
    last: int
    prompts: int
    counts: list[tuple[str, int]]
    pairs: list[Pair]


def read_samples(directory: Path, most: int) -> Samples | None:
    """Read the first and the last of veRL's validation dumps.

    Args:
        directory: with ``STEP.jsonl`` (``trainer.validation_data_dir``): per line ``input``, ``output``, ``gts``, ``score``
            and, with rewards that report it, ``acc``.
        most: so many prompts at most.

    Returns:
        the samples; None when there are not two steps with a common prompt. Of several responses to one prompt the first
        counts. Right is ``acc`` above 0.5, or without ``acc`` a score above 0.5.

    Raises:
        ValueError: for a damaged line, but for an unfinished last one.
    """
    files = {int(path.stem): path for path in directory.glob("*.jsonl") if path.stem.isdecimal()}
    if len(files) < 2:
        return None
    first, last = min(files), max(files)
    before, after = _responses(files[first]), _responses(files[last])
    pairs = [Pair(*_shortened(key), before[key], after[key]) for key in before if key in after]
    if not pairs:
        return None
    counts = [(f"{old} to {new}", len(_of_kind(pairs, (old, new)))) for old, new in KINDS]
    return Samples(first, last, len(pairs), [count for count in counts if count[1]], _chosen(pairs, most))


def _chosen(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """Every other one a prompt that was learned, the rest of the other kinds in turn; within a kind drawn by chance."""
    drawn = random.Random(0).sample(list(pairs), len(pairs))
    groups = [_of_kind(drawn, kind) for kind in KINDS]
    groups.append([pair for pair in drawn if "not scored" in (pair.before.verdict, pair.after.verdict)])
    taken = [0] * len(groups)
    turns = itertools.cycle((0, 1, 0, 2, 0, 3, 0, 4))
    while sum(taken) < min(most, len(pairs)):
        turn = next(turns)
        taken[turn] = min(taken[turn] + 1, len(groups[turn]))
    return [pair for group, count in zip(groups, taken, strict=True) for pair in group[:count]]


def _of_kind(pairs: Iterable[Pair], kind: tuple[str, str]) -> list[Pair]:
    return [pair for pair in pairs if (pair.before.verdict, pair.after.verdict) == kind]


def _responses(path: Path) -> dict[tuple[str, str], Response]:
    """First response to each prompt, by prompt and ground truth: one prompt may stand there for several questions."""
    found: dict[tuple[str, str], Response] = {}
    with path.open("rb") as file:
        for line in file:
            try:
                row = json.loads(line)
                key = str(row["input"]), _truth(row.get("gts"))
                score = _number(row.get("score"))
                text = _middle_left_out(str(row["output"]))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if not line.endswith(b"\n"):
                    break  # still being written
                raise ValueError(
                    f"{path} has a line that is not a generation as veRL dumps it ({line[:60]!r}); remove the file"
                ) from error
            found.setdefault(key, Response(text, _verdict(_number(row.get("acc")), score), score))
    return found


def _truth(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _verdict(accuracy: float | None, score: float | None) -> str:
    known = score if accuracy is None else accuracy
    return "not scored" if known is None else "right" if known > 0.5 else "wrong"


def _shortened(key: tuple[str, str]) -> tuple[str, str]:
    return _middle_left_out(key[0]), _middle_left_out(key[1])


def _middle_left_out(text: str) -> str:
    """The answer stands at the end, the beginning of the reasoning at the start."""
    missing = len(text) - _HEAD - _TAIL
    return text if missing <= 0 else f"{text[:_HEAD]}\n[... {missing:,} characters left out ...]\n{text[-_TAIL:]}"
