"""Files and tables of ``verl-trgrpo analyze``: gradients of tokens, and the page of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verl_trgrpo.analysis.gradients import analyze_gradients, chosen_parameters
from verl_trgrpo.analysis.options import UNIFORM, AnalyzeOptions
from verl_trgrpo.analysis.rollouts import open_policy, sample_rollouts
from verl_trgrpo.analysis.tokens import write_tokens
from verl_trgrpo.common.files import write_json
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
    write_tokens(page, model_label(options.model), prompts.tokenizer, model, rollouts, options, progress)
    if options.only_tokens:
        return str(page), True
    path = options.directory / "gradients.json"
    figures = analyze_gradients(model, rollouts, options, progress)
    write_json(path, {"options": asdict(options)} | provenance(Path(__file__).parent) | figures, default=str)
    return f"{gradient_text(figures)}\n\n{path}, {page}", figures["envelope"]["holds"]


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
                f"{facts['lowest_p']:.4f} to {facts['highest_p']:.4f}" if facts["tokens"] else "none",
                f"{facts['tokens']:,}",
                *(f"{column[q]:.4f}" for column in columns),
                f"{effect['update_norm'][q]:.3g}",
                "-" if cosines[q] is None else f"{cosines[q]:.3f}",
            ]
            for q, facts in enumerate(figures["quarters"])
        ]
        about = "before weighting" if name == UNIFORM else f"mean weight {effect['mean_weight']:.4f}"
        lines += ["", f"{name}: {about}", text_table(rows, _HEAD, "r" * len(_HEAD))]
    return "\n".join(lines)
