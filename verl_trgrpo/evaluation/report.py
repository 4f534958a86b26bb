"""The figures as a table for people."""

from __future__ import annotations

from verl_trgrpo.common.tables import text_table
from verl_trgrpo.evaluation.summary import Source, Summary
from verl_trgrpo.runs.statistics import Estimate

_METHOD = (
    "[...]: 95 % bootstrap over prompts, each drawn with all its samples; n/a where all prompts agree. "
    "pass@k is the unbiased estimate."
)


def render(summary: Summary) -> str:
    """Return the table and what has to be said about it, ending with a line break."""
    largest = summary.k if summary.k > 1 else None
    header = ["data source", "prompts", "n", f"avg@{summary.k}"]
    if largest:
        header.append(f"pass@{largest}")
    header += ["format ok", "tokens", "cut", "timed out", "unscorable"]
    lines = [_line(source, largest) for source in summary.sources]
    if summary.mean:
        mean = ["mean of sources", "", "", _shown(summary.mean)]
        if largest:
            mean.append(_shown(summary.mean_pass_at.get(largest)))
        lines.append(mean + [""] * (len(header) - len(mean)))
    table = text_table(lines, header, align="l".ljust(len(header), "r"))
    return "\n".join([table, *(note for source in summary.sources for note in _notes(source)), _METHOD]) + "\n"


def _line(source: Source, largest: int | None) -> list[str]:
    cells = [source.data_source, f"{source.prompts:,}", f"{source.responses / source.prompts:g}", _shown(source.avg)]
    if largest:
        cells.append(_shown(source.pass_at.get(largest)))
    return [
        *cells,
        f"{source.format_ok:.3f}",
        f"{source.tokens:.1f}",
        f"{source.cut:.3f}",
        str(source.timed_out),
        str(source.unscorable),
    ]


def _shown(value: Estimate | None) -> str:
    if value is None:
        return "n/a"
    if value.low is None or value.high is None:
        return f"{value.mean:.3f} [n/a]"
    return f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]"


def _notes(source: Source) -> list[str]:
    notes = []
    if source.timed_out or source.unscorable:
        notes.append(
            f"{source.data_source}: {source.timed_out + source.unscorable} responses without a verdict are in no accuracy "
            f"({source.left_out} prompts have no other); counted as wrong avg is {source.avg_low:.3f}, as right "
            f"{source.avg_high:.3f}"
        )
    notes += [f"{source.data_source}: unscorable, e.g. {_REASONS.get(reason, reason)}" for reason in source.reasons[:1]]
    if source.failed_searches:
        notes.append(f"{source.data_source}: {source.failed_searches} searches failed; see the search server's log")
    return notes


_REASONS = {"gold": "the ground truth was not understood"}
