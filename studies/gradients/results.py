"""Make the tables of gradients, of sharpness, and of efficiencies beside the outcomes of trainings; `make results` calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.compare.comparison import OUTCOME, Comparison
from verl_trgrpo.compare.statistics import Estimate, mean_interval
from verl_trgrpo.compare.tables import interval_text, words

SHARPNESS = ("gradient_norm", "sam_rise", "sam_curvature")
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
    """Return efficiencies, measured by key of `STUDIES`, and differences of final accuracies from the baseline.

    `outcome` returns the comparison of a study, None without records.
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


def table(name: str, content: dict[str, dict[str, Any]]) -> str:
    """Return the table of a measurement by checkpoint."""
    return sharpness_table(content) if name.endswith("sharpness") else gradients_table(content)


def sharpness_table(content: dict[str, dict[str, Any]]) -> str:
    """Return, for each radius, means over the checkpoints of an arm, and differences from grpo's of the same seed."""
    by_radius: dict[float, dict[str, dict[str, dict[str, Any]]]] = {}
    for checkpoint, measured in content.items():
        arm, seed = checkpoint.split("/")
        [models] = measured["models"].values()
        for radius, found in zip(measured["options"]["radius"], models, strict=True):
            by_radius.setdefault(radius, {}).setdefault(arm, {})[seed] = found
    rows = []
    for radius, arms in by_radius.items():
        for arm, seeds in arms.items():
            cells = [
                interval_text(mean_interval([seed[name]["mean"] for seed in seeds.values()])) for name in SHARPNESS
            ]
            differences = ["-"] * len(SHARPNESS)
            if arm != "grpo" and seeds.keys() <= arms["grpo"].keys():
                pairs = [(found, arms["grpo"][seed]) for seed, found in seeds.items()]
                differences = [
                    interval_text(
                        mean_interval([found[name]["mean"] - base[name]["mean"] for found, base in pairs]), "+"
                    )
                    for name in SHARPNESS
                ]
            rows.append([f"{radius:g}", arm, str(len(seeds)), *cells, *differences])
    shown = [words(name) for name in SHARPNESS]
    return markdown_table(rows, ["radius", "arm", "seeds", *shown, *(f"{name} minus grpo" for name in shown)])


def gradients_table(content: dict[str, dict[str, Any]]) -> str:
    """Return the share of tokens with p < 0.25 in the gradient of each checkpoint, without and with weights."""
    rows = []
    for checkpoint, found in content.items():
        quarters = [quarter["tokens"] for quarter in found["quarters"]]
        plain, weighted = found["shapings"]["uniform"], found["shapings"]["sigmoid"]
        names = ("share_at_logits", "share_at_parameters")
        shares = [f"{effect[name][0]:.3f}" for name in names for effect in (plain, weighted)]
        cosine = plain["cosine"][0][-1]
        rows.append(
            [
                checkpoint,
                f"{found['tokens']:,}",
                f"{quarters[0] / sum(quarters):.3f}",
                *shares,
                f"{plain['update_norm'][0] / plain['update_norm'][-1]:.2f}",
                f"{weighted['update_norm'][0] / weighted['update_norm'][-1]:.2f}",
                "-" if cosine is None else f"{cosine:.2f}",
                f"{found['envelope']['lowest']:.3f} to {found['envelope']['highest']:.3f}",
            ]
        )
    head = [
        "checkpoint", "tokens", "p < 0.25", "share at logits, w = 1", "TR-GRPO", "share at parameters, w = 1", "TR-GRPO",
        "update p < 0.25 / p > 0.75, w = 1", "TR-GRPO", "cosine of the two", "norm at logits / (1 - p)",
    ]  # fmt: skip
    return markdown_table(rows, head)
