"""Files, table and picture of ``verl-trgrpo analyze``: gradients of tokens, and the page of tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from verl_trgrpo.analysis.gradients import LogitGradients, analyze_gradients, chosen_parameters
from verl_trgrpo.analysis.options import UNIFORM, AnalyzeOptions
from verl_trgrpo.analysis.rollouts import open_policy, sample_rollouts
from verl_trgrpo.analysis.tokens import write_tokens
from verl_trgrpo.common.files import replaced_file, write_json
from verl_trgrpo.common.progress import Progress
from verl_trgrpo.common.text import text_table
from verl_trgrpo.evaluation.checkpoint import model_label
from verl_trgrpo.runs.environment import provenance


def analyze(options: AnalyzeOptions, progress: Progress) -> tuple[str, bool]:
    """Measure gradients of tokens, write the page of tokens, and all results into ``options.directory``.

    Returns:
        the result as text, and whether all tokens are within the theoretical bounds.

    Raises:
        ValueError: a device, model, data file or parameter name does not exist, or rewards are equal in every group.
        RuntimeError: a sharded checkpoint cannot be merged.
    """
    prompts, model = open_policy(options, options.model, options.directory)
    if not options.only_tokens:
        chosen_parameters(model, options.parameters)  # reports a wrong name before the work
    rollouts = sample_rollouts(prompts, model, options, progress, differing=not options.only_tokens)
    page = options.directory / "tokens.html"
    title = model_label(options.model)
    write_tokens(page, title, prompts.tokenizer, model, rollouts, options, progress)
    if options.only_tokens:
        return str(page), True
    path = options.directory / "gradients.json"
    figures, at_logits, norms = analyze_gradients(model, rollouts, options, progress)
    title = f"{options.model}: {figures['tokens']:,} tokens of {len(rollouts)} responses"
    plot_gradients(figures, at_logits, norms, path.with_suffix(".png"), title)
    write_json(path, {"options": asdict(options)} | provenance(Path(__file__).parent) | figures, default=str)
    text = f"{gradient_text(figures)}\n\n{path}, {path.with_suffix('.png')}, {page}"
    return text, figures["envelope"]["holds"]


_HEAD = (
    "p of the quarter's tokens", "tokens", "weight", "share: logits", "parameters", "update norm", "cosine with 4th",
)  # fmt: skip


def gradient_text(figures: Mapping[str, Any]) -> str:
    """Return tables of the figures of :func:`~verl_trgrpo.analysis.gradients.analyze_gradients`."""
    envelope, ratio = figures["envelope"], figures["parameter_norm_over_miss"]
    verdict = "all tokens are within" if envelope["holds"] else "NOT all tokens are within"
    lines = [
        f"{figures['tokens']:,} tokens, {figures['tokens_with_gradient']:,} with an advantage other than 0",
        f"gradient norm of log p at the logits: {envelope['lowest']:.4f} to {envelope['highest']:.4f} times (1 - p); "
        f"{verdict} 1 to sqrt(2)",
        f"by {figures['parameters']:,} parameters: {ratio['5%']:.3g} | {ratio['50%']:.3g} | {ratio['95%']:.3g} times (1 - p) "
        "(5 %, median, 95 % of the tokens)",
    ]
    for name, effect in figures["shapings"].items():
        columns = [effect[name] for name in ("weight", "share_at_logits", "share_at_parameters")]
        cosines = [row[-1] for row in effect["cosine"]]
        rows = [
            [
                range_of_p,
                f"{facts['tokens']:,}",
                *(f"{column[q]:.4f}" for column in columns),
                f"{effect['update_norm'][q]:.3g}",
                "-" if cosines[q] is None else f"{cosines[q]:.3f}",
            ]
            for q, (facts, range_of_p) in enumerate(zip(figures["quarters"], _ranges(figures), strict=True))
        ]
        about = "before weighting" if name == UNIFORM else f"mean weight {effect['mean_weight']:.4f}"
        lines += ["", f"{name}: {about}", text_table(rows, _HEAD, "r" * len(_HEAD))]
    return "\n".join(lines)


def _ranges(figures: Mapping[str, Any]) -> list[str]:
    quarters = figures["quarters"]
    return [f"{q['lowest_p']:.4f} to {q['highest_p']:.4f}" if q["tokens"] else "none" for q in quarters]


def plot_gradients(
    figures: Mapping[str, Any], at_logits: LogitGradients, norms: torch.Tensor, path: Path, title: str
) -> None:
    """Draw norms against probability with their bounds, and shares by quarter, into a PNG file."""
    import pandas
    from matplotlib.figure import Figure  # not pyplot, which would keep it alive

    figure = Figure(figsize=(15, 5), layout="constrained")
    figure.suptitle(title)
    logits, parameters, shares = figure.subplots(1, 3)
    _plot_norms(logits, at_logits.one_minus_prob, at_logits.norms, {"1 - p": 1.0, "sqrt(2) (1 - p)": math.sqrt(2)})
    logits.set(title="gradient norm of log p at the logits")
    ratio = figures["parameter_norm_over_miss"]
    bounds = {f"{bound:.3g} (1 - p)": bound for bound in (ratio["5%"], ratio["95%"])}
    _plot_norms(parameters, at_logits.one_minus_prob[: len(norms)], norms, bounds)
    parameters.set(title=f"by {figures['parameters']:,} parameters\n(90 % of the tokens are between the lines)")

    effects = figures["shapings"]
    by_shaping = {name: effect["share_at_parameters"] for name, effect in effects.items()}
    pandas.DataFrame(by_shaping, _ranges(figures)).plot.bar(ax=shares, rot=0, width=0.8, ylim=(0, 1), fontsize=8)
    shares.set(title="share of the summed norms |A| w ||g||\n(by parameters)", xlabel="p of the quarter's tokens")
    with replaced_file(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")


def _plot_norms(axis: Any, one_minus_prob: torch.Tensor, norms: torch.Tensor, bounds: Mapping[str, float]) -> None:
    import numpy as np

    shown = (one_minus_prob > 1e-9) & (norms > 0)
    axis.loglog(one_minus_prob[shown], norms[shown], ".", markersize=2, alpha=0.4, rasterized=True)
    line = np.geomspace(max(one_minus_prob[shown].min().item(), 1e-9), 1, 100)
    for (name, bound), style in zip(bounds.items(), ("-", "--"), strict=True):
        axis.loglog(line, bound * line, style, color="C3", linewidth=1, label=name)
    axis.set(xlabel="1 - p of the sampled token (rare tokens on the right)", ylabel="norm")
    axis.legend(fontsize="small")
    axis.grid(alpha=0.3)
