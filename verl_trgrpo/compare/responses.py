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


class DumpedResponse(NamedTuple):
    """One line of a dump.

    Args:
        prompt: prompt as the model saw it.
        truth: ground truth as a string; several questions may share a prompt.
        text: the response.
        verdict: ``right`` or ``wrong``, by whether ``acc`` or, for rewards without it, ``score`` is above 0.5; ``not scored``
            without either.
        score: the reward; None if it is not a finite number.
    """

    prompt: str
    truth: str
    text: str
    verdict: str
    score: float | None


class ResponsePair(NamedTuple):
    """Responses to one prompt at the first validation, None if there is only one validation, and at the last."""

    before: DumpedResponse | None
    after: DumpedResponse

    @property
    def kind(self) -> str:
        """Return both verdicts, such as "wrong to right"; "right" for a single validation."""
        return f"{self.before.verdict} to {self.after.verdict}" if self.before else self.after.verdict


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
    files = {int(path.stem): path for path in directory.glob("*.jsonl") if path.stem.isdecimal() and path.is_file()}
    if not files:
        return None
    first, last = min(files), max(files)
    before, after = (read_responses(files[step]) for step in (first, last))
    pairs = [ResponsePair(before[key] if first < last else None, after[key]) for key in before if key in after]
    if not pairs:
        return None
    counts = dict(Counter(pair.kind for pair in pairs).most_common())
    return Samples(first, last, counts, random.Random(0).sample(pairs, min(most, len(pairs))))


def read_responses(path: Path) -> dict[tuple[str, str], DumpedResponse]:
    """Read a dump: per line ``input``, ``output``, ``gts``, ``score`` and, if the reward reports it, ``acc``.

    Returns:
        the first response by prompt and ground truth.

    Raises:
        ValueError: a line is damaged; a last line that is still being written is skipped.
    """
    found: dict[tuple[str, str], DumpedResponse] = {}
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
            verdict = "not scored" if known is None else "right" if known > 0.5 else "wrong"
            truth = truth if isinstance(truth, str) else json.dumps(truth, ensure_ascii=False)
            found.setdefault((prompt, truth), DumpedResponse(prompt, truth, text, verdict, score))
    return found


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
