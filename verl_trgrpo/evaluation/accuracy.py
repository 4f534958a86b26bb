"""Score responses with the project's rewards, average them per data source with intervals, and format the table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pandas

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import text_table
from verl_trgrpo.compare.statistics import Estimate, mean_interval, pass_at_k
from verl_trgrpo.compare.tables import interval_text
from verl_trgrpo.data.rows import Row
from verl_trgrpo.evaluation.response_store import Response
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.registry import DefaultReward

_METHOD = (
    "[...]: 95 % bootstrap over prompts, each drawn with all its samples; none where all prompts agree. "
    "pass@k is the unbiased estimate."
)


@dataclass(frozen=True)
class Verdict:
    """The reward's verdict on one response.

    Args:
        acc: 1.0 right, 0.0 wrong, None not known.
        format_ok: as in the reward's Score.
        reason: why it is not known: ``timed_out``, ``gold`` (the ground truth was not understood) or the reward's error.
        failed_searches: of a searching response.
    """

    acc: float | None
    format_ok: float = 0.0
    reason: str = ""
    failed_searches: int = 0


Item = tuple[Row, Response, Verdict]


def score_responses(
    rows: Sequence[Row],
    responses: Sequence[Response],
    progress: Progress = no_progress,
    default_reward: DefaultReward | None = None,
) -> list[Item]:
    """Return each response with its row and the verdict on it, in order.

    Args:
        rows: those of one file, in any order.
        responses: to these rows.
        progress: shows the work.
        default_reward: the data source whose reward scores those that have none.
    """
    by_position = {row.position: row for row in rows}
    responses_shown = progress(responses, len(responses), "scores")
    return [_score(by_position[response.row], response, default_reward) for response in responses_shown]


def _score(row: Row, response: Response, default_reward: DefaultReward | None) -> Item:
    failed = int((response.extra.get("rollout_metrics") or {}).get("failed_searches", 0))
    try:
        score = compute_score(
            row.data_source,
            response.text,
            row.ground_truth,
            response.reward_input(row),
            default_reward=default_reward,
        )
    except Exception as error:  # rewards are foreign code, and one row must not end the evaluation
        return row, response, Verdict(None, reason=f"{type(error).__name__}: {error}"[:300], failed_searches=failed)
    reason = "gold" if score["gold_unparseable"] else "timed_out" if score["timed_out"] else ""
    acc = None if reason else score["acc"]
    return row, response, Verdict(acc, score["format_ok"], reason, failed)


@dataclass(frozen=True)
class Source:
    """The figures of one data source.

    Args:
        prompts: different prompts, the units of all intervals.
        responses: responses to them.
        avg: share of right responses, averaged over prompts; None without any known verdict.
        pass_at_k: probability that at least one of k samples is right; None if no prompt has k known verdicts.
        no_verdict: responses with an unknown verdict; accuracies leave them out.
        format_ok: mean over all responses.
        tokens: mean over all responses.
        cut: share of responses that ended at a length limit.
        failed_searches: sum over all responses.
    """

    prompts: int
    responses: int
    avg: Estimate | None
    pass_at_k: Estimate | None
    no_verdict: int
    format_ok: float
    tokens: float
    cut: float
    failed_searches: int


@dataclass(frozen=True)
class Summary:
    """All data sources by name; the means are over sources (None with fewer than two)."""

    k: int
    sources: dict[str, Source]
    mean_of_sources: Estimate | None
    mean_of_sources_pass_at_k: Estimate | None


def summarize(items: Sequence[Item], k: int, seed: int) -> Summary:
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

    def mean(*groups: list[float]) -> Estimate | None:
        return mean_interval(*groups, seed=seed) if all(groups) else None

    for name, responses in table.groupby("source"):
        by_prompt = responses.groupby("prompt", sort=False)["acc"].agg(["count", "sum", "mean"])
        averages.append(by_prompt["mean"].dropna().tolist())
        enough = by_prompt[by_prompt["count"] >= k]
        passes.append([pass_at_k(int(n), int(c), k) for n, c in zip(enough["count"], enough["sum"], strict=True)])
        means = responses[["format_ok", "tokens", "cut"]].mean().astype(float).to_dict()
        sources[str(name)] = Source(
            prompts=len(by_prompt),
            responses=len(responses),
            avg=mean(averages[-1]),
            pass_at_k=mean(passes[-1]),
            no_verdict=int(responses["acc"].isna().sum()),
            failed_searches=int(responses["failed_searches"].sum()),
            **means,
        )
    if len(sources) < 2:
        return Summary(k, sources, None, None)
    return Summary(k, sources, mean(*averages), mean(*passes))


def render(summary: Summary) -> str:
    """Return the table with its notes, ending with a line break."""
    rows, notes = [], []
    for name, source in summary.sources.items():
        rows.append(
            {
                "data source": name or "''",
                "prompts": f"{source.prompts:,}",
                "n": f"{source.responses / source.prompts:g}",
                **_accuracies(summary.k, source.avg, source.pass_at_k),
                "format ok": f"{source.format_ok:.3f}",
                "tokens": f"{source.tokens:.1f}",
                "cut": f"{source.cut:.3f}",
                "no verdict": str(source.no_verdict),
            }
        )
        if source.no_verdict:
            notes.append(f"{name}: accuracies leave out responses without a verdict (reasons: .verdicts.jsonl file)")
        if source.failed_searches:
            notes.append(f"{name}: {source.failed_searches} searches failed; see the search server's log")
    if summary.mean_of_sources:
        means = _accuracies(summary.k, summary.mean_of_sources, summary.mean_of_sources_pass_at_k)
        rows.append({"data source": "mean of sources", **means})
    header = [*rows[0]]
    cells = [[row.get(name, "") for name in header] for row in rows]
    return "\n".join([text_table(cells, header, align="l".ljust(len(header), "r")), *notes, _METHOD]) + "\n"


def _accuracies(k: int, avg: Estimate | None, pass_at: Estimate | None) -> dict[str, str]:
    found = {f"avg@{k}": avg} if k == 1 else {f"avg@{k}": avg, f"pass@{k}": pass_at}  # pass@1 is avg@1
    return {name: interval_text(value) if value else "n/a" for name, value in found.items()}
