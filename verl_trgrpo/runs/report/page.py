"""The page: what the template needs, as text, and the template filled in."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from verl_trgrpo import __version__
from verl_trgrpo.runs.compare.differences import Difference
from verl_trgrpo.runs.report.charts import Chart, number
from verl_trgrpo.runs.report.comparison import Entry, Section
from verl_trgrpo.runs.report.origin import Origin
from verl_trgrpo.runs.report.samples import Samples
from verl_trgrpo.runs.statistics import Estimate

TEMPLATE = "page.html.jinja"
OUTCOME = "final_accuracy"
# A model may write anything; HTML has no place for these.
_CONTROL = {code: "\ufffd" for code in range(32) if chr(code) not in "\t\n\r"}


class RunSamples(NamedTuple):
    """Samples, and whose they are."""

    name: str
    samples: Samples


@dataclass(frozen=True)
class Content:
    """Everything on the page; see :class:`~verl_trgrpo.runs.report.build.ReportOptions` for the first three.

    Args:
        upto: last step that the comparison takes.
        sections: the comparison.
        notes: sentences on what limits it.
        curves, weights, shares: pictures of the training.
        weight_notes: about arms without a picture of weights.
        gradients: pictures by file of ``verl-trgrpo analyze``.
        samples: responses before and after.
        origin: what was run.
    """

    title: str
    baseline: str
    metric: str | None
    upto: int
    sections: list[Section]
    notes: list[str]
    curves: list[Chart]
    weights: list[Chart]
    weight_notes: list[str]
    shares: list[Chart]
    gradients: list[tuple[str, list[Chart]]]
    samples: list[RunSamples]
    origin: Origin

    def charts(self) -> list[Chart]:
        """All pictures."""
        return [*self.curves, *self.weights, *self.shares, *(chart for _, charts in self.gradients for chart in charts)]


def render(content: Content) -> str:
    """Return the page: one file that needs nothing else. All text is escaped, the models' above all."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(interval=interval_text, signed=_signed, p_value=_p_value, data_uri=_data_uri)
    tests = [
        section.name
        for section in content.sections
        for entry in section.entries
        if entry.difference and entry.difference.p is not None
    ]
    page = environment.get_template(TEMPLATE).render(
        report=content,
        glance=summary(content),
        tests=len(tests),
        tested=list(dict.fromkeys(tests)),
        version=__version__,
    )
    return page.translate(_CONTROL)


def summary(content: Content) -> list[str]:
    """Return a sentence for each arm: the validation accuracy at the end, and whether it differs from the baseline's."""
    what = content.metric or "validation accuracy"
    for section in content.sections:
        if section.name == OUTCOME:
            return [f"{entry.arm.label}: {what} {_sentence(entry, content.baseline)}" for entry in section.entries]
    return [f"No {what} was logged."]


def _sentence(entry: Entry, baseline: str) -> str:
    text = f"{interval_text(entry.interval)}, {_count(entry.runs, 'run')}."
    if entry.arm.label == baseline:
        return f"{text} This is the baseline."
    if entry.difference is None:
        return f"{text} No run has a seed in common with {baseline}."
    return f"{text} {_signed(entry.difference.interval)} against {baseline}: {_verdict(entry.difference)}."


def _verdict(difference: Difference) -> str:
    if difference.p is None:
        return "one pair of runs shows no difference beyond chance"
    p = f"p = {_p_value(difference.p)}, corrected {_p_value(difference.p_holm)}, {_count(difference.pairs, 'pair')}"
    if difference.significant:
        return f"they differ ({p})"
    least = difference.smallest_p
    why = f"; so few pairs cannot give p below {_p_value(least)}" if least >= 0.05 else ""
    return f"these runs do not tell them apart ({p}{why})"


def interval_text(value: Estimate, sign: str = "") -> str:
    """Mean and 95 % interval, with the same decimals; `sign` goes before numbers that are not negative."""
    known = [x for x in (value.mean, value.low, value.high) if x is not None]
    size = max(map(abs, known))
    mean, *ends = [f"{sign if x >= 0 else ''}{number(x, size)}" for x in known]
    return f"{mean} [{', '.join(ends)}]" if ends else mean


def _signed(value: Estimate) -> str:
    return interval_text(value, "+")


def _p_value(p: float | None) -> str:
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def _count(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def _data_uri(png: bytes) -> Any:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
