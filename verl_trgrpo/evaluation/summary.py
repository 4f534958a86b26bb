"""From verdicts to figures: per data source, over prompts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from verl_trgrpo.evaluation.responses import Response
from verl_trgrpo.evaluation.rows import EvalRow
from verl_trgrpo.evaluation.scoring import Verdict
from verl_trgrpo.runs.statistics import Estimate, mean_interval, pass_at_k


@dataclass(frozen=True)
class Source:
    """The figures of one data source.

    prompts: different prompts, the units of all intervals; `responses` to them.
    avg: share of right responses, averaged over prompts; None without any known verdict.
    pass_at: probability that at least one of k samples is right, by k; without those k that no prompt has samples for.
    avg_low, avg_high: `avg` if every response with an unknown verdict were wrong, or right.
    timed_out, unscorable: responses with an unknown verdict, which are in no other accuracy figure.
    left_out: prompts without any known verdict, which therefore are in none either.
    reasons: why responses are unscorable, with examples.
    format_ok, f1, tokens, cut: means over all responses (`cut`: share that ended at a limit of length).
    """

    data_source: str
    prompts: int
    responses: int
    avg: Estimate | None
    pass_at: dict[int, Estimate]
    avg_low: float
    avg_high: float
    timed_out: int
    unscorable: int
    left_out: int
    reasons: list[str]
    format_ok: float
    f1: float
    tokens: float
    cut: float
    failed_searches: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return asdict(self) | {"pass_at": {str(k): asdict(value) for k, value in self.pass_at.items()}}


@dataclass(frozen=True)
class Summary:
    """All data sources in order of name; `mean` and `mean_pass_at` are over sources (None with fewer than two)."""

    k: int
    sources: list[Source]
    mean: Estimate | None
    mean_pass_at: dict[int, Estimate]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "k": self.k,
            "sources": {source.data_source: source.as_dict() for source in self.sources},
            "mean_of_sources": asdict(self.mean) if self.mean else None,
            "mean_of_sources_pass_at": {str(k): asdict(value) for k, value in self.mean_pass_at.items()},
        }


Item = tuple[EvalRow, Response, Verdict]


def k_values(k: int) -> list[int]:
    """Return the k of pass@k to report: powers of two below k, and k."""
    return [*(2**i for i in range(k.bit_length()) if 2**i < k), k]


def summarize(items: Iterable[Item], k: int, seed: int) -> Summary:
    """Return the figures of an evaluation.

    Rows with the same data source and messages are one prompt: some test files repeat each problem.

    Args:
        items: each response with its row and verdict.
        k: samples per row.
        seed: of the intervals.
    """
    by_source: dict[str, list[Item]] = {}
    for item in items:
        by_source.setdefault(item[0].data_source, []).append(item)
    sources = [_source(name, by_source[name], k, seed) for name in sorted(by_source)]
    if len(sources) < 2:
        return Summary(k, sources, None, {})
    known = [_known(_verdicts_by_prompt(by_source[name])) for name in sorted(by_source)]

    def over_sources(groups: list[list[float]]) -> Estimate | None:
        return mean_interval(*groups, seed=seed) if all(groups) else None

    mean = over_sources([[_mean(accs) for accs in prompts] for prompts in known])
    pass_at = {value: over_sources([_pass_values(prompts, value) for prompts in known]) for value in k_values(k)}
    return Summary(k, sources, mean, {value: estimate for value, estimate in pass_at.items() if estimate})


def _verdicts_by_prompt(items: Iterable[Item]) -> list[list[float | None]]:
    """Return 1.0, 0.0 or None for each response to each prompt."""
    accs: dict[str, list[float | None]] = {}
    for row, _, verdict in items:
        accs.setdefault(json.dumps(row.messages), []).append(verdict.acc)
    return [*accs.values()]


def _known(prompts: Iterable[Sequence[float | None]]) -> list[list[float]]:
    """Return the verdicts that are known, of the prompts that have any."""
    known = [[acc for acc in accs if acc is not None] for accs in prompts]
    return [accs for accs in known if accs]


def _pass_values(prompts: Iterable[list[float]], k: int) -> list[float]:
    return [pass_at_k(len(accs), accs.count(1.0), k) for accs in prompts if len(accs) >= k]


def _source(name: str, items: Sequence[Item], k: int, seed: int) -> Source:
    prompts = _verdicts_by_prompt(items)
    known = _known(prompts)
    verdicts = [verdict for _, _, verdict in items]
    timed_out = sum(verdict.reason == "timed_out" for verdict in verdicts)
    reasons = list(dict.fromkeys(verdict.reason for verdict in verdicts if verdict.reason not in ("", "timed_out")))

    def bound(unknown: float) -> float:
        return _mean([_mean([unknown if acc is None else acc for acc in accs]) for accs in prompts])

    return Source(
        data_source=name,
        prompts=len(prompts),
        responses=len(items),
        avg=mean_interval([_mean(accs) for accs in known], seed=seed) if known else None,
        pass_at={
            value: mean_interval(values, seed=seed) for value in k_values(k) if (values := _pass_values(known, value))
        },
        avg_low=bound(0.0),
        avg_high=bound(1.0),
        timed_out=timed_out,
        unscorable=sum(verdict.acc is None for verdict in verdicts) - timed_out,
        left_out=len(prompts) - len(known),
        reasons=reasons[:5],
        format_ok=_mean([verdict.format_ok for verdict in verdicts]),
        f1=_mean([verdict.f1 for verdict in verdicts]),
        tokens=_mean([response.tokens for _, response, _ in items]),
        cut=_mean([response.cut for _, response, _ in items]),
        failed_searches=sum(verdict.failed_searches for verdict in verdicts),
    )


def _mean(values: Sequence[float]) -> float:
    return float(sum(values)) / len(values)
