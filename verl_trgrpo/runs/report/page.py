"""The page: the template filled in."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from verl_trgrpo import __version__
from verl_trgrpo.common.problems import count_of
from verl_trgrpo.runs.compare.comparison import OUTCOME, Comparison, Difference
from verl_trgrpo.runs.compare.figures import FIGURES
from verl_trgrpo.runs.compare.table import difference_text
from verl_trgrpo.runs.numbers import interval_text
from verl_trgrpo.runs.report.samples import VERDICTS

TEMPLATE = "page.html.jinja"
# A model may write anything; HTML has no place for these.
_CONTROL = {code: "\ufffd" for code in range(32) if chr(code) not in "\t\n\r"}
_HEAD, _TAIL = 2500, 1500


def render(**content: Any) -> str:
    """Return the page: one file that needs nothing else. All text is escaped, the models' above all.

    Args:
        content: what `build_report` found, by the names that the template uses.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        data_uri=lambda png: f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}",
        verdict=VERDICTS.__getitem__,
        shortened=_middle_left_out,
    )
    page = environment.get_template(TEMPLATE).render(**content, figures=FIGURES, version=__version__)
    return page.translate(_CONTROL)


def summary(comparison: Comparison, baseline: str, what: str) -> list[str]:
    """Return a sentence for each arm: the validation accuracy at the end, and whether it differs from the baseline's."""
    found = []
    for arm, row in comparison.items():
        if (entry := row.get(OUTCOME)) is None:
            continue
        if arm == baseline:
            verdict = "the baseline"
        elif entry.difference is None:
            verdict = f"no seed in common with {baseline}"
        else:
            verdict = f"{difference_text(entry.difference)} against {baseline}: {_verdict(entry.difference)}"
        found.append(f"{arm}: {what} {interval_text(entry.estimate)}, {count_of(entry.runs, 'run')}; {verdict}")
    return found or [f"no {what} was logged; --metric NAME takes another metric"]


def _verdict(difference: Difference) -> str:
    if difference.test and difference.test.significant:
        return "they differ"
    if difference.equivalence and difference.equivalence.significant:
        return "they are equivalent"
    return "these runs do not tell them apart"


def _middle_left_out(text: str) -> str:
    """The answer stands at the end, the beginning of the reasoning at the start."""
    missing = len(text) - _HEAD - _TAIL
    return text if missing <= 0 else f"{text[:_HEAD]}\n[... {missing:,} characters left out ...]\n{text[-_TAIL:]}"
