"""Read the ground truth of a row: which answers it names, and whether it can be one."""

import math
import re
from collections.abc import Mapping
from typing import Any

from verl_trgrpo.common.text import shorten
from verl_trgrpo.judge.answer_form import brace_depths

MAX_GOLD_CHARS = 2000

_QUOTED = re.compile(r"""'((?:[^'\\]|\\.)+)'|"((?:[^"\\]|\\.)+)\"""")
_LIST_AS_TEXT = re.compile(
    rf"\s*\[\s*(?:{_QUOTED.pattern})(?:(?:\s*,\s*|\s+)(?:{_QUOTED.pattern}))*\s*(?:,\s*)?\]\s*", re.DOTALL
)


class GroundTruthError(ValueError):
    """The ground truth of a row cannot be read; the message says what is wrong with it.

    Rewards raise it. `verl_trgrpo.tasks.compute_score` counts it as `gold_unparseable`, so that one row does not end a run;
    builders and `verl-trgrpo data check` report it with the row.
    """


def golds_of(ground_truth: Any) -> list[Any]:
    """Return the acceptable answers that a ground truth names: itself, the items of a list, or those of ``{target: ...}``."""
    if isinstance(ground_truth, Mapping):  # of some public files, with the question beside it
        ground_truth = ground_truth.get("target")
    several = isinstance(ground_truth, (list, tuple)) or getattr(ground_truth, "ndim", 0) == 1
    golds = ground_truth if several else [ground_truth]
    return [each for gold in golds for each in (written_answers(gold) if isinstance(gold, str) else [gold])]


def written_answers(text: str) -> list[str]:
    """Return the acceptable answers of a text that may be a list written as text.

    NumPy prints the alternatives of a column without commas. A list with commas is one answer, of all its strings.

    >>> written_answers("['2916']"), written_answers("['4812', '5']"), written_answers("['5' '6']"), written_answers("2916")
    (['2916'], ['4812, 5'], ['5', '6'], ['2916'])
    """
    items = listed(text) or [text]
    between = text
    for item in items:
        between = between.replace(item, "", 1)
    return [", ".join(items)] if len(items) > 1 and "," in between else items


def is_number(value: Any) -> bool:
    """Return whether `value` is an int or a finite float; a bool is neither."""
    return math.isfinite(value) if isinstance(value, float) else type(value) is int


def gold_text(gold: Any) -> str:
    """Return a ground truth as a string.

    Raises:
        GroundTruthError: it is not a string or a finite number, or it is blank, "nan", too long, or has braces that are not
            balanced, so that no box can hold it.
    """
    if hasattr(gold, "item") and getattr(gold, "ndim", None) == 0:  # a numpy scalar
        gold = gold.item()
    text = str(gold) if is_number(gold) else gold
    if not isinstance(text, str) or text.strip().lower() in ("", "nan") or len(text) > MAX_GOLD_CHARS:
        raise GroundTruthError(
            f"the ground truth is {shorten(gold)}; it must be a string of 1 to {MAX_GOLD_CHARS} characters, a finite "
            "number, or a list of those; correct the data"
        )
    depths = [depth for _, depth in brace_depths(text)]
    if depths and (min(depths) < 0 or depths[-1] > 0):
        raise GroundTruthError(f"the ground truth is {shorten(text)}; its braces are not balanced; correct the data")
    return text


def listed(text: str) -> list[str] | None:
    r"""Return the strings of a list that was written as text, as Python, NumPy or JSON write one; None for other text.

    Backslashes are LaTeX's where they are not doubled throughout.

    >>> listed("['2916']"), listed("['\\frac12' \"1/2\"]"), listed("[1, 2]")
    (['2916'], ['\\frac12', '1/2'], None)
    """
    if not _LIST_AS_TEXT.fullmatch(text):
        return None
    items = [match[1] or match[2] for match in _QUOTED.finditer(text)]
    escaped = all(re.fullmatch(r"(?:[^\\]|\\[\\'\"])*", item) for item in items)
    return [re.sub(r"\\(.)", r"\1", item) if escaped else item for item in items]
