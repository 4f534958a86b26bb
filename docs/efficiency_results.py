"""Make the table of efficiencies at the start beside the outcomes of recorded trainings; `make results` calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.compare.comparison import OUTCOME, Comparison
from verl_trgrpo.compare.statistics import Estimate
from verl_trgrpo.compare.tables import interval_text

# Studies that start from the model and train on the task of a measurement, and the figure of it that their optimizer asks for.
STUDIES = {
    "tiny_puzzles": dict.fromkeys(("kk_tiny", "R1", "R2", "R3"), "adam_efficiency"),
    "small_lm_categories": {"small_lm_categories": "adam_efficiency"},
    "small_lm": dict.fromkeys(("small_lm", "small_lm_rate", "small_lm_verl"), "adam_efficiency")
    | {"small_lm_sgd": "efficiency"},
}
# Shapings by the arm of those studies.
ARMS = {"tr_grpo": "sigmoid", "tr_grpo_reverse": "sigmoid:reverse=true", "advantage_reweighting": "linear"}


def efficiency_table(measured: Mapping[str, Mapping[str, Any]], outcome: Callable[[str], Comparison | None]) -> str:
    """Return efficiencies and differences of final accuracies from the baseline.

    Args:
        measured: results of ``verl-trgrpo analyze --efficiency`` by a key of `STUDIES`.
        outcome: returns the comparison of a study, None without records.
    """
    rows = []
    for name, figures in measured.items():
        for study, figure in STUDIES[name].items():
            if (found := outcome(study)) is None:
                continue
            for arm, shaping in ARMS.items():
                if arm in found and shaping in figures["shapings"] and (own := found[arm][OUTCOME].difference):
                    predicted = interval_text(Estimate(**figures["shapings"][shaping][figure]))
                    rows.append([name, study, arm, predicted, interval_text(own.estimate, "+"), str(own.pairs)])
    return markdown_table(rows, ["measured on", "study", "arm", "efficiency at the start", "minus grpo", "seeds"])


def measurement_table(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what was measured of each start model."""
    rows = []
    for name, figures in measured.items():
        for shaping, one in figures["shapings"].items():
            cells = [interval_text(Estimate(**one[key])) for key in ("efficiency", "adam_efficiency", "cosine")]
            shares = [f"{figures[key]:.3f}" for key in ("rare_tokens", "rare_share")]
            if shaping != "uniform":
                rows.append([name, str(figures["mini_batches"]), *shares, shaping, *cells, f"{one['angle']:.1f}"])
    head = ["measured on", "mini-batches", "tokens p < 0.25", "their share of the proxy", "shaping", "efficiency",
            "after Adam", "cosine of means", "angle"]  # fmt: skip
    return markdown_table(rows, head)
