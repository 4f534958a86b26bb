"""Read the responses of validations that veRL dumps as ``STEP.jsonl`` into ``trainer.validation_data_dir``."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

# Subdirectory of a run directory into which the launcher and the single-file trainer dump.
DIRECTORY = "validation"

VERDICTS = {True: "right", False: "wrong", None: "not scored"}


class DumpedResponse(NamedTuple):
    """One line of a dump.

    Args:
        prompt: prompt as the model saw it.
        truth: ground truth as a string; several questions may share a prompt.
        text: the response.
        right: whether ``acc`` or, for rewards without it, ``score`` is above 0.5; None if it was not scored.
        score: the reward; None if it is not a finite number.
        source: data source; "" in veRL's own dumps, which do not name it.
    """

    prompt: str
    truth: str
    text: str
    right: bool | None
    score: float | None
    source: str


def dump_files(directory: Path) -> dict[int, Path]:
    """Return the dumps in a directory by ascending step; {} if the directory does not exist."""
    found = {int(path.stem): path for path in directory.glob("*.jsonl") if path.stem.isdecimal() and path.is_file()}
    return dict(sorted(found.items()))


def read_responses(path: Path) -> list[DumpedResponse]:
    """Read a dump: per line ``input``, ``output``, ``gts``, ``score`` and, if the reward reports it, ``acc``.

    Raises:
        ValueError: a line is damaged; a last line that is still being written is skipped.
    """
    found = []
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            try:
                row = json.loads(line)
                prompt, text, truth = row["input"], row["output"], row.get("gts")
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise ValueError(
                    f"{path} has a line that veRL did not dump ({line[:60]!r}); remove the file"
                ) from error
            score, accuracy = _number(row.get("score")), _number(row.get("acc"))
            known = score if accuracy is None else accuracy
            truth = truth if isinstance(truth, str) else json.dumps(truth, ensure_ascii=False)
            right = None if known is None else known > 0.5
            found.append(DumpedResponse(prompt, truth, text, right, score, row.get("data_source", "")))
    return found


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


class ResponsePair(NamedTuple):
    """Responses to one prompt at the first validation, None if there is only one validation, and at the last.

    `kind` has both verdicts, such as "wrong to right"; "right" for a single validation.
    """

    kind: str
    before: DumpedResponse | None
    after: DumpedResponse


class Samples(NamedTuple):
    """Responses of one run before and after training.

    Args:
        first, last: steps of the validations; equal if there is only one.
        counts: number of prompts that both validations have, by kind.
        pairs: randomly drawn ones.
    """

    first: int
    last: int
    counts: dict[str, int]
    pairs: list[ResponsePair]


def read_samples(directory: Path, most: int = 4) -> Samples | None:
    """Read the first and the last dump in a directory, and draw `most` prompts with a fixed seed.

    Of several responses to one prompt, the first counts. None without a dump, or if two dumps have no prompt in common.

    Raises:
        ValueError: a line is damaged.
    """
    if not (files := dump_files(directory)):
        return None
    before, after = (_by_prompt(files[step]) for step in (min(files), max(files)))
    shared = [(before[key] if len(files) > 1 else None, after[key]) for key in before if key in after]
    pairs = [ResponsePair(" to ".join(VERDICTS[one.right] for one in pair if one), *pair) for pair in shared]
    if not pairs:
        return None
    counts = dict(Counter(pair.kind for pair in pairs).most_common())
    return Samples(min(files), max(files), counts, random.Random(0).sample(pairs, min(most, len(pairs))))


def _by_prompt(path: Path) -> dict[tuple[str, str], DumpedResponse]:
    """Return the first response by prompt and ground truth."""
    found: dict[tuple[str, str], DumpedResponse] = {}
    for response in read_responses(path):
        found.setdefault((response.prompt, response.truth), response)
    return found
