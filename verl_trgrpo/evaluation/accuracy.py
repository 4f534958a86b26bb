"""Score responses with the project's rewards, average them per data source with intervals, and format the table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import text_table
from verl_trgrpo.compare.statistics import Estimate, pass_at_k, prompts_interval
from verl_trgrpo.compare.tables import interval_text
from verl_trgrpo.data.rows import COUNTS, Row
from verl_trgrpo.evaluation.response_store import Response
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.registry import known_agent_loops

_METHOD = (
    "[...]: 95 %, over prompts with all their samples; none below five prompts, or where all agree. pass@j is the unbiased "
    "estimate from all samples."
)


@dataclass(frozen=True)
class Verdict:
    """The reward's verdict on one response.

    Args:
        acc: 1.0 right, 0.0 wrong, None not known.
        format_ok: as in the reward's Score.
        reason: why it is not known: ``timed_out``, ``gold`` (the ground truth was not understood) or the reward's error.
        counts: what its agent loop counted.
    """

    acc: float | None
    format_ok: float = 0.0
    reason: str = ""
    counts: Mapping[str, float] = field(default_factory=dict)


ScoredResponse = tuple[Row, Response, Verdict]


def score_responses(
    rows: Sequence[Row],
    responses: Sequence[Response],
    progress: Progress = no_progress,
    default_reward: str | None = None,
) -> list[ScoredResponse]:
    """Return each response to the rows of one file with its row and the verdict on it, in order."""
    by_position = {row.position: row for row in rows}
    shown = progress(responses, len(responses), "scores")
    return [_score(by_position[response.row], response, default_reward) for response in shown]


def _score(row: Row, response: Response, default_reward: str | None) -> ScoredResponse:
    try:
        given = response.reward_input(row)
        score = compute_score(row.data_source, response.text, row.ground_truth, given, default_reward=default_reward)
    except Exception as error:  # rewards are foreign code, and one row must not end the evaluation
        return row, response, Verdict(None, reason=f"{type(error).__name__}: {error}"[:300])
    reason = "gold" if score["gold_unparseable"] else "timed_out" if score["timed_out"] else ""
    acc = None if reason else score["acc"]
    counts = {name: score[name] for name in response.extra.get(COUNTS) or ()}
    return row, response, Verdict(acc, score["format_ok"], reason, counts)


@dataclass(frozen=True)
class Source:
    """The figures of one data source.

    Args:
        prompts: different prompts, the units of all intervals.
        responses: responses to them.
        avg: share of right responses, averaged over prompts; None without any known verdict.
        pass_at: by j, probability that at least one of j samples is right; None if no prompt has j known verdicts.
        no_verdict: responses with an unknown verdict; accuracies leave them out.
        format_ok: mean over all responses.
        tokens: mean over all responses.
        cut: share of responses that ended at a length limit.
        counts: of the agent loop, sums over all responses.
    """

    prompts: int
    responses: int
    avg: Estimate | None
    pass_at: dict[int, Estimate | None]
    no_verdict: int
    format_ok: float
    tokens: float
    cut: float
    counts: dict[str, float]


@dataclass(frozen=True)
class Summary:
    """All data sources by name; the means are over sources (None with fewer than two)."""

    k: int
    sources: dict[str, Source]
    mean_of_sources: Estimate | None
    mean_of_sources_pass_at_k: Estimate | None


def summarize(items: Sequence[ScoredResponse], k: int, seed: int) -> Summary:
    """Compute the figures of an evaluation with `k` samples per row; `seed` is that of the intervals.

    Rows with the same data source and messages are one prompt: some test files repeat each problem.
    """
    table = pandas.DataFrame(
        {
            "source": row.data_source,
            "prompt": json.dumps(row.messages),
            "tokens": response.tokens,
            "cut": response.cut,
            **vars(verdict),
        }
        for row, response, verdict in items
    ).astype({"acc": float})  # None becomes NaN, which sums and means leave out
    sources: dict[str, Source] = {}
    averages: list[list[float]] = []
    passes: list[list[float]] = []
    sizes = [*(1 << power for power in range(k.bit_length()) if 1 << power < k), k]
    for name, responses in table.groupby("source"):
        by_prompt = responses.groupby("prompt", sort=False)["acc"].agg(["count", "sum", "mean"])
        averages.append(by_prompt["mean"].dropna().tolist())
        known = [(int(n), int(c)) for n, c in zip(by_prompt["count"], by_prompt["sum"], strict=True)]
        each = {j: [pass_at_k(n, c, j) for n, c in known if n >= j] for j in sizes}
        passes.append(each[k])
        means = responses[["format_ok", "tokens", "cut"]].mean().astype(float).to_dict()
        sources[str(name)] = Source(
            prompts=len(by_prompt),
            responses=len(responses),
            avg=share(averages[-1], seed=seed),
            pass_at={j: share(values, seed=seed) for j, values in each.items()},
            no_verdict=int(responses["acc"].isna().sum()),
            counts=pandas.DataFrame([*responses["counts"]]).sum().to_dict(),
            **means,
        )
    if len(sources) < 2:
        return Summary(k, sources, None, None)
    return Summary(k, sources, share(*averages, seed=seed), share(*passes, seed=seed))


def share(*groups: Sequence[float], seed: int) -> Estimate | None:
    """Return the mean of shares of prompts, or of several sources' means, with its 95 % interval; None if a group is empty."""
    return prompts_interval(*groups, seed=seed) if all(groups) else None


def summary_text(summary: Summary) -> str:
    """Return the table with its notes, ending with a line break."""
    rows, notes = [], []
    failures = {name: advice for loop in known_agent_loops().values() for name, advice in loop.failures.items()}
    for name, source in summary.sources.items():
        rows.append(
            {
                "data source": name or "''",
                "prompts": f"{source.prompts:,}",
                "n": f"{source.responses / source.prompts:g}",
                **_accuracies(summary.k, source.avg, source.pass_at[summary.k]),
                "format ok": f"{source.format_ok:.3f}",
                "tokens": f"{source.tokens:.1f}",
                "cut": f"{source.cut:.3f}",
                "no verdict": str(source.no_verdict),
            }
        )
        if source.no_verdict:
            notes.append(f"{name}: accuracies leave out responses without a verdict (reasons: .verdicts.jsonl file)")
        for count, advice in failures.items():
            if source.counts.get(count):
                notes.append(f"{name}: {source.counts[count]:.0f} {count.replace('_', ' ')}; {advice}")
    if summary.mean_of_sources:
        means = _accuracies(summary.k, summary.mean_of_sources, summary.mean_of_sources_pass_at_k)
        rows.append({"data source": "mean of sources", **means})
    header = [*rows[0]]
    cells = [[row.get(name, "") for name in header] for row in rows]
    parts = [text_table(cells, header, align="l".ljust(len(header), "r"))]
    for name, source in summary.sources.items() if summary.k > 1 else ():
        found = _shown({f"pass@{j}": value for j, value in source.pass_at.items()})
        table = text_table([["", *found.values()]], [name or "''", *found], "l".ljust(len(found) + 1, "r"))
        parts += ["", table]
    if summary.k > 1:
        parts.append("")
    return "\n".join([*parts, *notes, _METHOD]) + "\n"


def _accuracies(k: int, avg: Estimate | None, pass_at: Estimate | None) -> dict[str, str]:
    return _shown({f"avg@{k}": avg} if k == 1 else {f"avg@{k}": avg, f"pass@{k}": pass_at})  # pass@1 is avg@1


def _shown(found: dict[str, Estimate | None]) -> dict[str, str]:
    return {name: interval_text(value) if value else "n/a" for name, value in found.items()}
