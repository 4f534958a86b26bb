"""Responses of validations as veRL dumps them: ``STEP.jsonl`` files in ``trainer.validation_data_dir``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

# In a run's directory, where the launcher and the single-file trainer have veRL's dumps written.
DIRECTORY = "validation"


class Response(NamedTuple):
    """One line of a dump.

    Args:
        prompt: as the model saw it.
        truth: the ground truth, as text; one prompt may stand there for several questions.
        text: of the response.
        right: whether ``acc`` or, for rewards without it, ``score`` is above 0.5; None if it was not scored.
        score: the reward; None if it is not a finite number.
        source: data source; veRL's own dumps do not name it ("").
    """

    prompt: str
    truth: str
    text: str
    right: bool | None
    score: float | None
    source: str


def dump_files(directory: Path) -> dict[int, Path]:
    """Return the dumps in a directory by step, rising; {} where there is no such directory."""
    found = {int(path.stem): path for path in directory.glob("*.jsonl") if path.stem.isdecimal()}
    return dict(sorted(found.items()))


def read_responses(path: Path) -> list[Response]:
    """Read a dump: per line ``input``, ``output``, ``gts``, ``score`` and, with rewards that report it, ``acc``.

    Raises:
        ValueError: for a damaged line, except for a last one that is still being written.
    """
    found = []
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            try:
                row = json.loads(line)
                prompt, text, truth = row["input"], row["output"], row.get("gts")
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{path} has a line that veRL did not dump ({line[:60]!r}); remove the file"
                ) from error
            score, accuracy = _number(row.get("score")), _number(row.get("acc"))
            known = score if accuracy is None else accuracy
            truth = truth if isinstance(truth, str) else json.dumps(truth, ensure_ascii=False)
            right = None if known is None else known > 0.5
            found.append(Response(prompt, truth, text, right, score, row.get("data_source", "")))
    return found


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
