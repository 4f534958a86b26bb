"""Make the tables and the picture of the study of the first 40 steps (map.yaml) from its records; `make results` calls it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from studies.chains.effects import Effect, difference_text, effect, pooled, save_svg
from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.compare.statistics import holm

Key = tuple[str, int, int, float, str]
OPTIMIZERS = {"adam": "Adam", "sgd": "SGD"}
# Those on the map, by what the parts of the study have in common.
MAPS = (("adam", "tr_grpo"), ("adam", "power"), ("adam", "power_reverse"), ("sgd", "tr_grpo"), ("sgd", "power"))
NAMES = {"tr_grpo": "TR-GRPO", "power": "power, a stronger shaping"}
CONTROLS = ("tr_grpo_token_mean", "tr_grpo_shuffled", "grpo_scaled_lr", "tr_grpo_reverse", "advantage_reweighting")


@dataclass
class Outcome:
    """An arm of a chain compared with the baseline.

    Args:
        effect: difference of accuracies, paired by seed.
        gain: the baseline's accuracy minus the start's.
        corrected: p-value, corrected for the number of tests.
        verdict: gain, cost, neutral or open, as map.yaml states.
    """

    effect: Effect
    gain: float
    corrected: float = 1.0
    verdict: str = "open"

    @property
    def relative(self) -> float:
        """Return the difference as a part of the baseline's gain."""
        return self.effect.estimate.mean / self.gain

    @property
    def text(self) -> str:
        """Return the difference with its interval, corrected p and verdict."""
        return f"{difference_text(self.effect, self.corrected)} {self.verdict}"


def read_lines(path: Path) -> dict[Key, dict[str, Any]]:
    """Return the lines of the records by optimizer, passes, fillers, right and arm."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {(one["optimizer"], one["passes"], one["fillers"], one["right"], one["arm"]): one for one in lines}


def minus(lines: Mapping[Key, dict[str, Any]], key: Key, other: Key) -> Effect:
    """Return the accuracies of one line minus those of another, paired by seed."""
    return effect([a - b for a, b in zip(lines[key]["accuracy"], lines[other]["accuracy"], strict=True)])


def outcomes(lines: Mapping[Key, dict[str, Any]], study: Mapping[str, Any]) -> dict[Key, Outcome]:
    """Compare every arm with the baseline of its chain; the primary tests and all others are corrected apart."""
    found = {}
    for key in lines:
        if key[-1] not in ("measurement", study["baseline"]):
            base = (*key[:-1], study["baseline"])
            gain = sum(lines[base]["accuracy"]) / len(lines[base]["accuracy"]) - lines[base]["start_accuracy"]
            found[key] = Outcome(minus(lines, key, base), gain)
    primary = [key for key in found if key[:2] == ("adam", 1) and key[-1] == study["primary"]]
    for group in (primary, [key for key in found if key not in primary]):
        for key, corrected in holm({key: found[key].effect.p for key in group}).items():
            own, margin = found[key], study["margin"]
            own.corrected = corrected
            low, high = own.effect.estimate.low, own.effect.estimate.high
            assert low is not None and high is not None
            if corrected < 0.05:
                own.verdict = "gain" if own.effect.estimate.mean > 0 else "cost"
            elif -margin < low and high < margin:
                own.verdict = "neutral"
    return found


def by_chain(
    found: Mapping[Key, Outcome], optimizer: str, arm: str, passes: int = 1
) -> dict[tuple[int, float], Outcome]:
    """Return an arm's outcomes by fillers and right."""
    return {key[2:4]: one for key, one in found.items() if key[:2] == (optimizer, passes) and key[-1] == arm}


def map_table(found: Mapping[Key, Outcome], optimizer: str, arm: str) -> str:
    """Return an arm's differences from the baseline, on-policy, by chain."""
    own = by_chain(found, optimizer, arm)
    fillers, rights = sorted({n for n, _ in own}), sorted({right for _, right in own})
    rows = [[f"{right:g}", *(own[n, right].text for n in fillers)] for right in rights]
    return markdown_table(rows, ["right at the start", *(f"{n} fillers" for n in fillers)])


def pooled_table(found: Mapping[Key, Outcome]) -> str:
    """Return means over chains of each seed's difference, where the right decision is likely and where it is rare."""
    rows = []
    for (optimizer, passes, arm), about in {
        ("adam", 1, "tr_grpo"): "tr_grpo, Adam", ("adam", 1, "power"): "power, Adam", ("sgd", 1, "tr_grpo"): "tr_grpo, SGD",
        ("adam", 4, "tr_grpo"): "tr_grpo, Adam, four passes", ("adam", 4, "power"): "power, Adam, four passes",
    }.items():  # fmt: skip
        own = by_chain(found, optimizer, arm, passes)
        halves = [
            [one.effect for (_, right), one in own.items() if (right >= 0.5) == likely] for likely in (True, False)
        ]
        rows.append([about, *(f"{difference_text(one := pooled(half), one.p)} ({len(half)})" for half in halves)])
    return markdown_table(rows, ["minus grpo", "right 0.5 or 0.75 (chains)", "right 0.1 or 0.25 (chains)"])


def controls_table(lines: Mapping[Key, dict[str, Any]], primary: str) -> str:
    """Return each control minus the primary arm in the corners of the map, paired by seed; p is not corrected."""
    corners = [key[:4] for key in lines if key[-1] == CONTROLS[0]]
    rows = []
    for arm in CONTROLS:
        effects = [minus(lines, (*corner, arm), (*corner, primary)) for corner in corners]
        rows.append([arm, *(difference_text(one, one.p) for one in effects)])
    return markdown_table(rows, [f"minus {primary}", *corner_heads(corner[2:] for corner in corners)])


def corner_heads(corners: Iterable[tuple[int, float]]) -> list[str]:
    """Return heads of columns."""
    return [f"{fillers} fillers, right {right:g}" for fillers, right in corners]


def off_policy_table(found: Mapping[Key, Outcome]) -> str:
    """Return differences from the baseline with several passes over each batch, and how they differ from those with one."""
    several = {key: one for key, one in found.items() if key[1] > 1}
    corners = sorted({key[2:4] for key in several})
    rows = []
    for optimizer, passes, arm in dict.fromkeys((*key[:2], key[-1]) for key in several):
        own, once = (by_chain(found, optimizer, arm, number) for number in (passes, 1))
        falls = [
            effect([a - b for a, b in zip(own[corner].effect.values, once[corner].effect.values, strict=True)])
            for corner in corners
        ]
        overall = (pooled([own[corner].effect for corner in corners]), pooled(falls))
        cells = [own[corner].text for corner in corners] + [difference_text(one, one.p) for one in overall]
        rows.append([OPTIMIZERS[optimizer], arm, *cells])
    head = ["optimizer", "arm", *corner_heads(corners), "all four, p not corrected", "all four, minus one pass"]
    return markdown_table(rows, head)


def correlation_table(found: Mapping[Key, Outcome], lines: Mapping[Key, dict[str, Any]]) -> str:
    """Return rank correlations of predictions and outcomes over chains: of the efficiency, and of what needs no gradients."""
    from scipy import stats

    def correlation(values: Sequence[float], results: Sequence[float]) -> str:
        result = stats.spearmanr(values, results)
        return f"{result.statistic:+.2f} (p={result.pvalue:.2g})"

    measured = {key[2:4]: line["directions"] for key, line in lines.items() if key[-1] == "measurement"}
    rows = []
    for optimizer, arm in MAPS:
        own = by_chain(found, optimizer, arm)
        figure = "adam_efficiency" if optimizer == "adam" else "efficiency"
        efficiency = [measured[chain][arm][figure]["mean"] for chain in own]
        predictors = {"efficiency": efficiency, "right at the start": [right for _, right in own],
                      "1 / GRPO's gain": [1 / one.gain for one in own.values()]}  # fmt: skip
        differences = [one.effect.estimate.mean for one in own.values()]
        relative = [one.relative for one in own.values()]
        signs = sum((value > 1) == (gain > 0) for value, gain in zip(efficiency, differences, strict=True))
        for name, values in predictors.items():
            cells = [str(signs), str(sum(gain > 0 for gain in differences))] if values is efficiency else ["", ""]
            found_by = (correlation(values, relative), correlation(values, differences))
            rows.append([OPTIMIZERS[optimizer], arm, name, *found_by, *cells])
    head = ["optimizer", "arm", "predictor", "correlation, part of GRPO's gain", "correlation, accuracy", "signs right of 16",
            "right if always a gain"]  # fmt: skip
    return markdown_table(rows, head)


def plot_map(found: Mapping[Key, Outcome], path: Path) -> None:
    """Draw where two arms gain and cost with Adam, on-policy, into an SVG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4), layout="constrained")
    for axis, arm in zip(figure.subplots(1, 2), ("tr_grpo", "power"), strict=True):
        own = by_chain(found, "adam", arm)
        fillers, rights = sorted({n for n, _ in own}), sorted({right for _, right in own})
        values = [[own[n, right].effect.estimate.mean for n in fillers] for right in rights]
        image = axis.pcolormesh(values, cmap="RdYlGn", vmin=-0.04, vmax=0.04)
        for y, right in enumerate(rights):
            for x, n in enumerate(fillers):
                one = own[n, right]
                text = f"{one.effect.estimate.mean:+.3f}\n{one.verdict}"
                axis.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=8,
                          fontweight="bold" if one.verdict in ("gain", "cost") else "normal")  # fmt: skip
        axis.set_xticks([x + 0.5 for x in range(len(fillers))], [f"{n}" for n in fillers])
        axis.set_yticks([y + 0.5 for y in range(len(rights))], [f"{right:g}" for right in rights])
        axis.set(title=f"{NAMES[arm]}; Adam, 40 steps", xlabel="fillers among 12 tokens", ylabel="right at the start")
    figure.colorbar(image, ax=figure.axes, label="held-out accuracy minus GRPO's", shrink=0.8)
    save_svg(figure, path)


def sections(lines: Mapping[Key, dict[str, Any]], study: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables by the names of their places on the page."""
    found = outcomes(lines, study)
    return {
        "map": map_table(found, "adam", study["primary"]),
        "pooled": pooled_table(found),
        "power": map_table(found, "adam", "power"),
        "sgd": map_table(found, "sgd", study["primary"]),
        "controls": controls_table(lines, study["primary"]),
        "off_policy": off_policy_table(found),
        "prediction": correlation_table(found, lines),
    }
