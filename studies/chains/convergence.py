"""Make the tables and the picture of the study of chains of 320 steps (study.yaml) from its records; `make results` calls it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from studies.chains.effects import Effect, corrected, difference_text, effect, failures_text, p_text, pooled, save_svg
from studies.chains.reading import CHAIN_HEAD, SCALE, Chain, Records, chain_text
from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.compare.statistics import equivalence_p_value


def mean_text(values: Sequence[float] | np.ndarray) -> str:
    """Return the mean of accuracies."""
    return f"{np.mean(values):.3f}"


def horizon_table(records: Records, step: int) -> str:
    """Return what the primary arm gains at a horizon, by three ways to treat the rate; at the end with tests of equality."""
    arms, end = records.arms, step == records.steps[-1]
    chains = records.chains(*arms)
    declared = {chain: records.difference(chain, arms, step) for chain in chains}
    tested = [chain for chain in records.planned if end or chain[1] >= 0.5]
    p = corrected({chain: declared[chain].p for chain in chains if chain in tested}, len(tested))
    equal = corrected(
        {chain: equivalence_p_value(declared[chain].values, records.study["margin"]) or 0.0 for chain in chains},
        len(records.planned),
    )
    rows = []
    for chain in chains:
        own, base = (records.tuned(chain, arm, step) for arm in arms)
        cells = [mean_text(records.accuracies(chain, arms[1], step)), difference_text(declared[chain], p.get(chain)),
                 difference_text(one := effect(own - base), one.p)]  # fmt: skip
        for of in ("held_out", "train"):
            cells.append(
                difference_text(one := records.rates_effect(chain, step, of), one.p)
                if complete(records, chain)
                else "-"
            )
        if end:
            verdict = "equal" if equal[chain] < 0.05 else "open"
            if p[chain] < 0.05:
                below = ", below the margin" if verdict == "equal" else ""
                verdict = ("gain" if declared[chain].estimate.mean > 0 else "loss") + below
            both = (records.accuracies(chain, arm, step) for arm in arms)
            cells += [p_text(equal[chain]), verdict, failures_text(*both), f"{late_rise(records, chain):.3f}"]
        rows.append([*chain_text(chain), *cells])
    head = [*CHAIN_HEAD, f"GRPO, {step} steps", "declared: best of five rates", "top of the parabola", "mean over rates",
            "mean over rates, train"]  # fmt: skip
    if end:
        head += [
            f"equal within {records.study['margin']:g}",
            "verdict",
            "ratio of failures",
            "GRPO's rise in 100 steps",
        ]
    return markdown_table(rows, head)


def complete(records: Records, chain: Chain) -> bool:
    """Return whether both arms were counted at all rates."""
    return all(records.rates(chain, arm) == records.study["rates"][chain[1]] for arm in records.arms)


def late_rise(records: Records, chain: Chain) -> float:
    """Return what the baseline gains in 100 steps at the end, over the last 80 at its best rate, on held-out prompts."""
    rate = records.best(chain, records.arms[1], records.steps[-1])
    assert rate is not None
    curve = records.line(chain, records.arms[1], rate)["curve"]
    return (curve[-1][1] - curve[-9][1]) / 80 * 100 if len(curve) > 8 else float("nan")


# Ways to compare an arm with a baseline: name, both arms, and how rates are treated.
WAYS = (
    ("tr_grpo, each at the best of five rates", ("tr_grpo", "grpo"), "best"),
    ("tr_grpo, each at the top of the parabola", ("tr_grpo", "grpo"), "top"),
    ("tr_grpo, both at GRPO's best rate for 320", ("tr_grpo", "grpo"), "one rate"),
    ("tr_grpo, mean over five rates", ("tr_grpo", "grpo"), "all rates"),
    ("tr_grpo, both with a rate that falls to 0", ("tr_grpo_decay", "grpo_decay"), "best"),
    ("tr_grpo_centered, each at its best", ("tr_grpo_centered", "grpo"), "best"),
    ("power, each at its best", ("power", "grpo"), "best"),
)


def way_effect(records: Records, chain: Chain, arms: tuple[str, str], how: str, step: int, of: str) -> Effect:
    """Return the difference of two arms on a chain by one of the ways."""
    if how == "all rates":
        return records.rates_effect(chain, step, of)
    if how == "top":
        return effect(records.tuned(chain, arms[0], step, of) - records.tuned(chain, arms[1], step, of))
    rate = records.best(chain, arms[1], records.steps[-1]) if how == "one rate" else None
    return records.difference(chain, arms, step, rate, of)


def groups_table(records: Records) -> str:
    """Return means over the chains with a likely and with a rare right decision, by all ways to compare, not corrected."""
    rows = []
    for step in records.study["horizons"]:
        for name, arms, how in WAYS:
            cells = []
            for likely in (True, False):
                group = [chain for chain in records.chains(*arms) if (chain[1] >= 0.5) == likely]
                for of in ("held_out", "train"):
                    found = [way_effect(records, chain, arms, how, step, of) for chain in group]
                    cells.append(difference_text(one := pooled(found), one.p) if found else "-")
            rows.append([str(step), name, *cells])
    head = [f"{right}, {of}" for right in ("right 0.5 or 0.75", "right 0.1") for of in ("held out", "train")]
    return markdown_table(rows, ["steps", "minus GRPO", *head])


def gaps_table(records: Records) -> str:
    """Return gaps where a train accuracy is first passed: the primary arm at the same rates, the baseline at lower ones.

    Means of each seed over rates 2 to 4 of five, minus the baseline at these rates; seeds that pass with all.
    """
    arms, rows = records.arms, []

    def figures(chain: Chain, arm: str, rates: Sequence[float], threshold: float) -> np.ndarray:
        """Return gap and step of each seed, means over rates."""
        step, train, held_out = (
            np.mean([records.passing(chain, arm, rate, threshold, name) for rate in rates], 0)
            for name in ("step", "train", "held_out")
        )
        return np.stack([train - held_out, step])

    for threshold in records.study["thresholds"]:
        kept: list[np.ndarray] = []
        chains = [chain for chain in records.planned if chain[1] >= 0.5 and complete(records, chain)]
        for chain in chains:
            rates = records.study["rates"][chain[1]]
            base = figures(chain, arms[1], rates[1:4], threshold)
            kept.append(np.stack([figures(chain, arms[0], rates[1:4], threshold) - base,
                                  figures(chain, arms[1], rates[:3], threshold) - base]))  # fmt: skip
            rows.append([f"{threshold:g}", *chain_text(chain), f"{np.nanmean(base[0]):.3f}", *gap_cells(kept[-1])])
        if kept:
            rows.append([f"{threshold:g}", "mean of these", "", "", *gap_cells(np.mean(kept, 0))])
    head = [
        "train accuracy",
        *CHAIN_HEAD,
        "gap, GRPO",
        "TR-GRPO, same rate",
        "steps",
        "GRPO, rate 1.4 times lower",
        "steps",
    ]
    return markdown_table(rows, head)


def gap_cells(changes: np.ndarray) -> list[str]:
    """Return differences of gap and steps, (two comparisons, gap and step, seeds)."""
    whole = changes[..., ~np.isnan(changes).any((0, 1))]
    cells = []
    for gap, step in whole:
        cells += [difference_text(one := effect(gap), one.p), f"{step.mean():+.1f}"]
    return cells


def path_table(records: Records) -> str:
    """Return the difference at each step at the baseline's best rate for the last one; means over chains and rates follow."""
    arms, rows = records.arms, []
    for chain in records.chains(*arms):
        rate = records.best(chain, arms[1], records.steps[-1])
        if rate in records.rates(chain, arms[0]):
            for of in ("held_out", "train"):
                cells = [difference_text(records.difference(chain, arms, step, rate, of)) for step in records.steps]
                rows.append([*chain_text(chain), f"{rate:g}", of.replace("_", " "), *cells])
    for name, likely in (("0.5 and 0.75", True), ("0.1", False)):
        group = [chain for chain in records.chains(*arms) if complete(records, chain) and (chain[1] >= 0.5) == likely]
        for of in ("held_out", "train") if group else ():
            cells = [
                difference_text(pooled([records.rates_effect(c, step, of) for c in group])) for step in records.steps
            ]
            rows.append([name, "both", "mean of five", of.replace("_", " "), *cells])
    return markdown_table(rows, [*CHAIN_HEAD, "rate", "prompts", *(f"{step} steps" for step in records.steps)])


def passing_table(records: Records) -> str:
    """Return gap and sharpness at the first passing of each train accuracy, at the baseline's best rate."""
    figures = {"gap": lambda one: [(a - b) / SCALE for a, b in zip(one["train"], one["held_out"], strict=True)],
               "noise_loss": lambda one: [1000 * value for value in one["noise_loss"]], "curvature": lambda one: one["curvature"],
               "step": lambda one: one["step"]}  # fmt: skip
    effects: dict[str, dict[tuple[Chain, float], tuple[list[float], Effect]]] = {name: {} for name in figures}
    for chain in records.planned:
        for threshold in records.study["thresholds"]:
            for own, other in records.passed(chain, threshold):
                for name, of in figures.items():
                    differences = [a - b for a, b in zip(of(own), of(other), strict=True)]
                    effects[name][chain, threshold] = of(other), effect(differences)
    tests = len(records.planned) * len(records.study["thresholds"])
    # Both figures of sharpness are one family.
    p: dict[str, dict[tuple[Chain, float], float]] = {}
    for family in (("step",), ("gap",), ("noise_loss", "curvature")):
        together = {(name, key): one.p for name in family for key, (_, one) in effects[name].items()}
        for (name, key), value in corrected(together, tests * len(family)).items():
            p.setdefault(name, {})[key] = value
    rows = []
    for key in effects["gap"]:
        cells = []
        for name, digits in (("step", 0), ("gap", 3), ("noise_loss", 2), ("curvature", 2)):
            base, found = effects[name][key]
            low, high = found.estimate.low, found.estimate.high
            places = max(digits, 1)
            span = "" if low is None else f" [{low:+.{places}f}, {high:+.{places}f}]"
            change = f"{found.estimate.mean:+.{places}f}{span} {p_text(p[name][key])}"
            cells += [f"{sum(base) / len(base):.{digits}f}", change]
        rows.append([*chain_text(key[0]), f"{key[1]:g}", str(len(effects["gap"][key][0])), *cells])
    names = ("step", "gap", "loss under noise, thousandths", "largest eigenvalue")
    head = [
        *CHAIN_HEAD,
        "train accuracy",
        "pairs",
        *(text for name in names for text in (f"{name}, GRPO", "difference")),
    ]
    return markdown_table(rows, head)


def rates_table(records: Records) -> str:
    """Return the difference at the last step at every rate, and summed over the upper two."""
    arms, end = records.arms, records.steps[-1]
    sums: dict[Chain, Effect] = {}
    cells: dict[Chain, list[str]] = {}
    for chain in records.planned:
        tuned = records.study["rates"][chain[1]]
        if not complete(records, chain):
            continue
        found = [records.difference(chain, arms, end, rate) for rate in tuned]
        cells[chain] = [f"{rate:g}: {mean_text(records.accuracies(chain, arms[1], end, rate))} "
                        f"{difference_text(one)}" for rate, one in zip(tuned, found, strict=True)]  # fmt: skip
        sums[chain] = effect([a + b for a, b in zip(found[-2].values, found[-1].values, strict=True)])
    p = corrected({chain: one.p for chain, one in sums.items()}, len(records.planned))
    rows = [[*chain_text(chain), *cells[chain], difference_text(one, p[chain])] for chain, one in sums.items()]
    head = [*CHAIN_HEAD, *(f"rate {place}" for place in range(1, 6)), "sum of the upper two"]
    return markdown_table(rows, head)


def worth_table(records: Records) -> str:
    """Return what else can be changed, minus GRPO at the top of its parabola; each at its best rate for the horizon."""
    baseline, (early, end) = records.study["baseline"], records.study["horizons"]
    pairs = [(arm, baseline) for arm in records.study["arms"] if arm not in (baseline, "tr_grpo_decay")]
    rows = []
    for arms in [*pairs, ("tr_grpo_decay", "grpo_decay"), ("tr_grpo_centered", "tr_grpo")]:
        chains = records.chains(*arms)
        for step in (early, end) if chains else ():
            found = {c: effect(records.tuned(c, arms[0], step) - records.tuned(c, arms[1], step)) for c in chains}
            cells = [difference_text(found[chain]) if chain in found else "-" for chain in records.planned]
            rows.append([f"{arms[0]} minus {arms[1]}", str(step), *cells])
    head = ["", "steps", *(f"{right:g}, {fillers} fillers" for fillers, right in records.planned)]
    return markdown_table(rows, head)


def plot_curves(records: Records, path: Path) -> None:
    """Draw accuracies against steps at the baseline's best rate, and the difference over all rates, into an SVG file."""
    from matplotlib.figure import Figure

    arms = {records.arms[1]: ("0.35", "GRPO"), records.arms[0]: ("tab:red", "TR-GRPO")}
    # Columns of equal right decisions.
    chains = sorted((chain for chain in records.chains(*arms) if complete(records, chain)), key=lambda c: (c[0], -c[1]))
    columns = max(1, min(3, len(chains)))
    rows = max(1, -(-len(chains) // columns))
    figure = Figure(figsize=(3.6 * columns, 4.3 * rows), layout="constrained")
    axes = figure.subplots(2 * rows, columns, squeeze=False, sharex=True, sharey="row", height_ratios=[1.2, 1] * rows)
    for place, chain in enumerate(chains):
        axis, below = axes[2 * (place // columns) : 2 * (place // columns) + 2, place % columns]
        rate = records.best(chain, records.arms[1], records.steps[-1])
        assert rate is not None
        for arm, (colour, name) in arms.items():
            curve = np.array(records.line(chain, arm, rate)["curve"])
            for values, style, prompts in zip(curve.T, (":", "-"), ("train", "held out"), strict=True):
                axis.plot(10 * np.arange(1, len(curve) + 1), values, style, color=colour, linewidth=1.3,
                          label=f"{name}, {prompts}")  # fmt: skip
        axis.set_title(
            f"right decision {chain[1]:g} at the start,\n{chain[0]} fillers; learning rate {rate:g}", fontsize=9
        )
        axis.set_ylim(0, 1)
        for of, style, colour in (("train", ":", "tab:blue"), ("held_out", "-", "tab:red")):
            found = [records.rates_effect(chain, step, of).estimate for step in records.steps]
            below.plot(records.steps, [one.mean for one in found], style, color=colour, linewidth=1.3,
                       label=of.replace("_", " "))  # fmt: skip
            ends = ([one.low or 0.0 for one in found], [one.high or 0.0 for one in found])
            below.fill_between(records.steps, *ends, color=colour, alpha=0.2, linewidth=0)
        below.axhline(0, color="0.5", linewidth=0.8, zorder=0)
        below.set_ylim(-0.03, 0.03)
    for row in range(0, 2 * rows, 2):
        axes[row, 0].set_ylabel("exact accuracy", fontsize=9)
        axes[row + 1, 0].set_ylabel("TR-GRPO minus GRPO,\nmean over five rates", fontsize=9)
    if chains:
        axes[0, 0].legend(fontsize=7)
        axes[1, 0].legend(fontsize=7, loc="lower left")
    figure.supxlabel("steps", fontsize=9)
    save_svg(figure, path)
