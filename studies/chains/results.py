"""Make the tables and pictures of the study of chains (run.py) from its records; `make results` calls it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_trgrpo.common.files import replaced_file
from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.compare.statistics import Estimate, holm, mean_interval, paired_p_value
from verl_trgrpo.compare.tables import interval_text

Key = tuple[str, int, int, float, str]
OPTIMIZERS = {"adam": "Adam", "sgd": "SGD"}
# Those on the map, by what the parts of the study have in common.
MAPS = (("adam", "tr_grpo"), ("adam", "power"), ("adam", "power_reverse"), ("sgd", "tr_grpo"), ("sgd", "power"))
CONTROLS = ("tr_grpo_token_mean", "tr_grpo_shuffled", "grpo_scaled_lr", "tr_grpo_reverse", "advantage_reweighting")


@dataclass
class Outcome:
    """An arm of a chain compared with the baseline.

    Args:
        difference: of accuracies, paired by seed.
        p_value: of the paired test; `corrected` for the number of tests.
        gain: the baseline's accuracy minus the start's.
        verdict: gain, cost, neutral or open, as study.yaml states.
    """

    difference: Estimate
    p_value: float
    gain: float
    corrected: float = 1.0
    verdict: str = "open"

    @property
    def relative(self) -> float:
        """Return the difference as a part of the baseline's gain."""
        return self.difference.mean / self.gain


def read_lines(path: Path) -> dict[Key, dict[str, Any]]:
    """Return the lines of the records by optimizer, passes, fillers, right and arm."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {(one["optimizer"], one["passes"], one["fillers"], one["right"], one["arm"]): one for one in lines}


def outcomes(lines: Mapping[Key, dict[str, Any]], study: Mapping[str, Any]) -> dict[Key, Outcome]:
    """Compare every arm with the baseline of its chain; the primary tests and all others are corrected apart."""
    found = {}
    for key, line in lines.items():
        if key[-1] in ("measurement", study["baseline"]):
            continue
        base = lines[(*key[:-1], study["baseline"])]
        differences = [own - other for own, other in zip(line["accuracy"], base["accuracy"], strict=True)]
        gain = sum(base["accuracy"]) / len(base["accuracy"]) - base["start_accuracy"]
        found[key] = Outcome(mean_interval(differences), paired_p_value(differences) or 0.0, gain)
    primary = [key for key in found if key[:2] == ("adam", 1) and key[-1] == study["primary"]]
    for group in (primary, [key for key in found if key not in primary]):
        for key, corrected in holm({key: found[key].p_value for key in group}).items():
            own, margin = found[key], study["margin"]
            own.corrected = corrected
            low, high = own.difference.low, own.difference.high
            assert low is not None and high is not None
            if corrected < 0.05:
                own.verdict = "gain" if own.difference.mean > 0 else "cost"
            elif -margin < low and high < margin:
                own.verdict = "neutral"
    return found


def outcome_text(outcome: Outcome) -> str:
    """Return a difference with its interval, corrected p and verdict."""
    return f"{interval_text(outcome.difference, '+')} p={outcome.corrected:.2g} {outcome.verdict}"


def by_chain(found: Mapping[Key, Outcome], optimizer: str, arm: str) -> dict[tuple[int, float], Outcome]:
    """Return an arm's outcomes on-policy by fillers and right."""
    return {key[2:4]: one for key, one in found.items() if key[:2] == (optimizer, 1) and key[-1] == arm}


def axes_of(own: Mapping[tuple[int, float], Outcome]) -> tuple[list[int], list[float]]:
    """Return the numbers of fillers and the probabilities of the right decision of a map."""
    return sorted({fillers for fillers, _ in own}), sorted({right for _, right in own})


def map_table(found: Mapping[Key, Outcome], optimizer: str, arm: str) -> str:
    """Return an arm's differences from the baseline, on-policy, by chain."""
    own = by_chain(found, optimizer, arm)
    fillers, rights = axes_of(own)
    rows = [
        [f"{right:g}", *(outcome_text(own[n, right]) if (n, right) in own else "-" for n in fillers)]
        for right in rights
    ]
    return markdown_table(rows, ["right at the start", *(f"{n} fillers" for n in fillers)])


def arms_table(found: Mapping[Key, Outcome], lines: Mapping[Key, dict[str, Any]], passes: int) -> str:
    """Return every arm of every chain: rates, accuracies, differences."""
    rows = []
    for key, line in lines.items():
        optimizer, own_passes, fillers, right, arm = key
        if arm == "measurement" or own_passes != passes:
            continue
        outcome = found.get(key)
        tried = line.get("rates")
        edge = "*" if tried and line["rate"] in (tried[0], tried[-1]) else ""
        rows.append([
            OPTIMIZERS[optimizer], str(fillers), f"{right:g}", arm, f"{line['rate']:.2g}{edge}",
            f"{line['start_accuracy']:.3f}", interval_text(mean_interval(line["accuracy"])),
            outcome_text(outcome) if outcome else "-", f"{outcome.relative:+.1%}" if outcome else "-",
        ])  # fmt: skip
    head = ["optimizer", "fillers", "right", "arm", "rate", "start", "accuracy", "minus grpo", "of grpo's gain"]
    return markdown_table(rows, head)


def controls_table(lines: Mapping[Key, dict[str, Any]], study: Mapping[str, Any]) -> str:
    """Return each control minus the primary arm in the corners of the map, paired by seed; p is not corrected."""
    corners = [key[2:4] for key in lines if key[-1] == CONTROLS[0]]
    rows = []
    for arm in CONTROLS:
        cells = []
        for corner in corners:
            accuracies = (lines[("adam", 1, *corner, name)]["accuracy"] for name in (arm, study["primary"]))
            differences = [own - other for own, other in zip(*accuracies, strict=True)]
            cells.append(f"{interval_text(mean_interval(differences), '+')} p={paired_p_value(differences):.2g}")
        rows.append([arm, *cells])
    head = [f"{fillers} fillers, right {right:g}" for fillers, right in corners]
    return markdown_table(rows, [f"minus {study['primary']}", *head])


def off_policy_table(found: Mapping[Key, Outcome]) -> str:
    """Return differences from the baseline with several passes over each batch."""
    outcomes = {key: one for key, one in found.items() if key[1] > 1}
    corners = sorted({key[2:4] for key in outcomes})
    rows = []
    for optimizer, arm in dict.fromkeys((key[0], key[-1]) for key in outcomes):
        own = {key[2:4]: one for key, one in outcomes.items() if (key[0], key[-1]) == (optimizer, arm)}
        cells = [outcome_text(own[corner]) if corner in own else "-" for corner in corners]
        rows.append([OPTIMIZERS[optimizer], arm, *cells])
    head = [f"{fillers} fillers, right {right:g}" for fillers, right in corners]
    return markdown_table(rows, ["optimizer", "arm", *head])


def measurement_table(lines: Mapping[Key, dict[str, Any]]) -> str:
    """Return what was measured of the start policies."""
    rows = []
    for (_, _, fillers, right, arm), line in lines.items():
        if arm == "measurement":
            for name, direction in line["directions"].items():
                if name != "grpo":
                    figures = [interval_text(Estimate(**direction[key])) for key in ("efficiency", "adam_efficiency")]
                    shares = [f"{line[key]:.3f}" for key in ("rare_tokens", "rare_share")]
                    rows.append([str(fillers), f"{right:g}", *shares, name, *figures, f"{direction['angle']:.1f}"])
    head = [
        "fillers",
        "right",
        "tokens p < 0.25",
        "their share of the proxy",
        "arm",
        "efficiency",
        "after Adam",
        "angle",
    ]
    return markdown_table(rows, head)


def predictions(
    found: Mapping[Key, Outcome], lines: Mapping[Key, dict[str, Any]], optimizer: str, arm: str
) -> list[tuple[float, Outcome]]:
    """Return the efficiency at the start and the outcome of on-policy training of each chain."""
    figure = "adam_efficiency" if optimizer == "adam" else "efficiency"
    measured = {key[2:4]: line["directions"] for key, line in lines.items() if key[-1] == "measurement"}
    return [
        (measured[chain][arm][figure]["mean"], outcome)
        for chain, outcome in by_chain(found, optimizer, arm).items()
        if arm in measured.get(chain, {})
    ]


def correlation_table(found: Mapping[Key, Outcome], lines: Mapping[Key, dict[str, Any]]) -> str:
    """Return rank correlations of prediction and outcome over chains, for each arm and optimizer.

    The last columns say how often the sign is right: of the prediction, and of always expecting a gain.
    """
    from scipy import stats

    def correlation(values: Sequence[float], outcomes: Sequence[float]) -> str:
        result = stats.spearmanr(values, outcomes)
        return f"{result.statistic:+.2f} (p={result.pvalue:.2g})"

    rows = []
    for optimizer, name in OPTIMIZERS.items():
        arms = {arm: predictions(found, lines, optimizer, arm) for own, arm in MAPS if own == optimizer}
        for arm, pairs in (arms | {"all of these": [*itertools.chain(*arms.values())]}).items():
            if len(pairs) > 2:
                values, outcomes = zip(*pairs, strict=True)
                gained = [one.difference.mean > 0 for one in outcomes]
                right = sum((value > 1) == gain for value, gain in zip(values, gained, strict=True))
                rows.append([name, arm, str(len(pairs)), correlation(values, [one.relative for one in outcomes]),
                             correlation(values, [one.difference.mean for one in outcomes]), str(right),
                             str(sum(gained))])  # fmt: skip
    head = ["optimizer", "arm", "points", "correlation, part of GRPO's gain", "correlation, accuracy", "sign right",
            "right if always a gain"]  # fmt: skip
    return markdown_table(rows, head)


def plot_map(found: Mapping[Key, Outcome], path: Path) -> None:
    """Draw where each arm gains and costs, on-policy, into a PNG file."""
    from matplotlib.figure import Figure

    shown = [one for one in MAPS if by_chain(found, *one)]
    columns = max(sum(other == optimizer for other, _ in shown) for optimizer in OPTIMIZERS)
    figure = Figure(figsize=(4.2 * columns, 8), layout="constrained")
    axes = figure.subplots(len(OPTIMIZERS), columns)
    image: Any = None
    for axis in axes.flat:
        axis.set_visible(False)
    for optimizer, arm in shown:
        row = [*OPTIMIZERS].index(optimizer)
        axis = axes[row, [other for own, other in shown if own == optimizer].index(arm)]
        axis.set_visible(True)
        own = by_chain(found, optimizer, arm)
        fillers, rights = axes_of(own)
        values = [[own[n, r].relative if (n, r) in own else float("nan") for n in fillers] for r in rights]
        image = axis.imshow(values, cmap="RdYlGn", vmin=-0.25, vmax=0.25, origin="lower", aspect="auto")
        for y, r in enumerate(rights):
            for x, n in enumerate(fillers):
                if (n, r) in own:
                    one = own[n, r]
                    text = f"{one.relative:+.0%}\n{one.difference.mean:+.3f}\n{one.verdict}"
                    weight = "bold" if one.verdict in ("gain", "cost") else "normal"
                    colour = "w" if abs(one.relative) > 0.19 else "k"
                    axis.text(x, y, text, ha="center", va="center", fontsize=8, fontweight=weight, color=colour)
        axis.set_xticks(range(len(fillers)), [f"{n}" for n in fillers])
        axis.set_yticks(range(len(rights)), [f"{r:g}" for r in rights])
        axis.set(title=f"{arm}, {OPTIMIZERS[optimizer]}", xlabel="fillers among 12 tokens")
    for row in axes:
        row[0].set_ylabel("probability of the right decision at the start")
    figure.colorbar(image, ax=axes, label="difference from grpo over grpo's gain", shrink=0.6, extend="both")
    _save(figure, path)


def plot_predictions(found: Mapping[Key, Outcome], lines: Mapping[Key, dict[str, Any]], path: Path) -> None:
    """Draw the outcome of training against the efficiency at the start into a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    for axis, (optimizer, name) in zip(figure.subplots(1, 2), OPTIMIZERS.items(), strict=True):
        for other, arm in MAPS:
            own = predictions(found, lines, optimizer, arm) if other == optimizer else []
            if pairs := [(value, outcome.relative) for value, outcome in own]:
                axis.plot(*zip(*pairs, strict=True), "o", label=arm, alpha=0.8)
        axis.axhline(0, color="0.6", linewidth=1)
        axis.axvline(1, color="0.6", linewidth=1)
        axis.set(title=name, xlabel="efficiency at the start, relative to GRPO's", ylabel="difference over GRPO's gain")
        if len(axis.lines) > 2:
            axis.legend(fontsize="small")
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    with replaced_file(path) as temporary:
        figure.savefig(temporary, dpi=90, format="png")


def sections(
    lines: Mapping[Key, dict[str, Any]], study: Mapping[str, Any]
) -> tuple[str, Sequence[str], Mapping[Key, Outcome]]:
    """Return the block for the page of results, the parts of the study's own page, and the outcomes."""
    found = outcomes(lines, study)
    primary = map_table(found, "adam", study["primary"])
    controls, off_policy = controls_table(lines, study), off_policy_table(found)
    block = "\n\n".join([
        primary, f"Controls minus `{study['primary']}`, Adam; p is not corrected:", controls,
        f"Several passes over each batch, minus `{study['baseline']}`:", off_policy,
        "Efficiency at the start against the outcome of training, over chains (Spearman's rank correlations):",
        correlation_table(found, lines),
    ])  # fmt: skip
    parts = ["![map](chains_map.png)"]
    for optimizer, arm in MAPS:
        if by_chain(found, optimizer, arm):
            parts += [f"## {arm}, {OPTIMIZERS[optimizer]}, on-policy", map_table(found, optimizer, arm)]
    parts += [
        "## Prediction",
        "![prediction](chains_prediction.png)",
        correlation_table(found, lines),
        measurement_table(lines),
    ]
    parts += ["## Controls, Adam", controls, "## Several passes over each batch", off_policy]
    for passes in sorted({key[1] for key in lines}):
        parts += [
            f"## All arms, {passes} pass{'es' if passes > 1 else ''} over each batch",
            arms_table(found, lines, passes),
        ]
    parts += ["A star marks a rate at an end of the grid. p is corrected."]
    return block, parts, found
