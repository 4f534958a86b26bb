"""Tables of comparisons: numbers with intervals and p-values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from verl_trgrpo.common.text import as_markdown, markdown_table
from verl_trgrpo.compare.comparison import FIGURES, OUTCOME, TESTED, Comparison, Difference, PValue
from verl_trgrpo.compare.statistics import Estimate


class Table(NamedTuple):
    """A table with a caption; the first cell of a row names it."""

    about: str
    head: list[str]
    rows: list[list[str]]


def number(value: float, size: float | None = None) -> str:
    """Return a number with three decimals or three digits, with an exponent if it is very small or large.

    `size` is the magnitude of the largest number beside it, so that all get the same decimals.
    """
    size = abs(value) if size is None else size
    if not math.isfinite(value):
        return "not a number"
    if size and not 1e-3 <= size < 1e7:
        return f"{value:.2e}"
    return f"{value:,.{3 if size < 10 else 1 if size < 1000 else 0}f}"


def interval_text(value: Estimate, sign: str = "") -> str:
    """Return mean and interval with the same decimals; `sign` is put before numbers that are not negative."""
    known = [x for x in (value.mean, value.low, value.high) if x is not None]
    size = max(map(abs, known))
    mean, *ends = [f"{sign if x >= 0 else ''}{number(x, size)}" for x in known]
    return f"{mean} [{', '.join(ends)}]" if ends else mean


def p_value_text(test: PValue | None) -> str:
    """Return ``p=...`` with the corrected p-value in parentheses, "" without a test."""
    if test is None:
        return ""
    first = "p < 0.001" if test.p < 0.001 else f"p={_p_text(test.p)}"
    return first + (f" ({_p_text(test.corrected)})" if test.corrected is not None else "")


def difference_text(difference: Difference) -> str:
    """Return mean difference, interval and p-values."""
    return f"{interval_text(difference.estimate, '+')} {p_value_text(difference.test)}".rstrip()


def _p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def comparison_tables(found: Comparison, baseline: str, primary: str = "", margin: float | None = None) -> list[Table]:
    """Return the tables of a comparison: means, and differences from the baseline with their tests."""
    names = list(shown_figures(found))
    tested = [name for name in TESTED if name in names]
    means, differences, equivalences = [], [], []
    for arm, row in found.items():
        runs = max((entry.runs for entry in row.values()), default=0)
        means.append([arm, str(runs), *(interval_text(row[name].estimate) if name in row else "-" for name in names)])
        if arm != baseline:
            own = {name: entry.difference for name, entry in row.items() if entry.difference}
            cells = (difference_text(own[name]) if name in own else "-" for name in tested)
            differences.append([f"{arm} (primary)" if arm == primary else arm, *cells])
            equivalences.append(p_value_text(own[OUTCOME].equivalence) if OUTCOME in own else "")
    about = (
        f"Differences from {baseline}, paired by seed: mean, 95 % interval, p of the sign-flip test, and in parentheses p "
        "corrected for all tests except the primary one."
    )
    head = ["arm", *map(words, tested)]
    if any(equivalences):
        about += " Equivalence: p of the test that the difference in final accuracy is smaller than the margin (TOST)."
        head.append(f"equivalence within {margin}")
        differences = [[*row, text or "-"] for row, text in zip(differences, equivalences, strict=True)]
    tables = [
        Table("Means over seeds, with 95 % intervals.", ["arm", "seeds", *map(words, names)], means),
        Table(about, head, differences),
    ]
    return [table for table in tables if table.rows]


def shown_figures(found: Comparison) -> dict[str, str]:
    """Return name and meaning of the figures that any arm has."""
    return {name: about for name, about in FIGURES.items() if any(name in row for row in found.values())}


def words(name: str) -> str:
    """Return the name of a figure without underscores."""
    return name.replace("_", " ")


def figure_list(found: Comparison) -> str:
    """Return a list of the figures that any arm has, with their meanings, in Markdown."""
    return "\n".join(f"- {words(name)}: {about}" for name, about in shown_figures(found).items())


def markdown_tables(tables: Sequence[Table]) -> str:
    """Return tables in Markdown, each below its caption; names of arms may be anybody's."""
    return "\n\n".join(
        f"{as_markdown(table.about, 500)}\n\n{markdown_table([[as_markdown(arm), *row] for arm, *row in table.rows], table.head)}"
        for table in tables
    )
