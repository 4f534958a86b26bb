"""Read the responses of a validation, as veRL dumps them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from verl_trgrpo.common.typed import OptionalNumber, Schema, typed_lines


class DumpedResponse(NamedTuple):
    """One line of a dump; `score` is the reward, None if it is not a finite number.

    The verdict is ``right`` or ``wrong``, by whether ``acc`` or, for rewards without it, ``score`` is above 0.5; ``not scored``
    without either.
    """

    prompt: str
    truth: str
    text: str
    verdict: str
    score: float | None


class DumpedLine(Schema):
    """One line of veRL's dump of a validation; a model may have written lone surrogates."""

    input: str
    output: str
    gts: Any = None
    score: OptionalNumber = None
    acc: OptionalNumber = None


def read_lines(path: Path) -> Iterator[tuple[int, DumpedResponse]]:
    """Yield the numbers of the lines of a dump and their responses.

    A line has ``input``, ``output``, ``gts``, ``score`` and, if the reward reports it, ``acc``. One that has not is left out,
    with a warning; a last line that is still being written is skipped.
    """
    for number, (_, row) in enumerate(typed_lines(DumpedLine, path), start=1):
        if row is None:
            continue
        score, accuracy = _finite(row.score), _finite(row.acc)
        known = score if accuracy is None else accuracy
        verdict = "not scored" if known is None else "right" if known > 0.5 else "wrong"
        truth = row.gts if isinstance(row.gts, str) else json.dumps(row.gts, ensure_ascii=False)
        yield number, DumpedResponse(row.input, truth, row.output, verdict, score)


def read_responses(path: Path) -> dict[tuple[str, str], DumpedResponse]:
    """Return the first response of a dump by prompt and ground truth, which several questions with one prompt tell apart."""
    found: dict[tuple[str, str], DumpedResponse] = {}
    for _, response in read_lines(path):
        found.setdefault((response.prompt, response.truth), response)
    return found


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
