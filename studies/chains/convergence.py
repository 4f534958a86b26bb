"""Make the tables and the picture of the study of chains to convergence (run.py) from its records; `make results` calls it."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from studies.chains.effects import Effect, corrected, difference_text, effect, p_text, pooled, save_svg
from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.compare.statistics import equivalence_p_value

SCALE = 1e4
Chain = tuple[int, float]


class Records:
    """The records of the study, some of which may be missing; `study` is the content of study.yaml."""

    def __init__(self, lines: Sequence[Mapping[str, Any]], study: Mapping[str, Any]) -> None:
        self.study, self.steps = study, study["steps"]
        self.lines = {
            (one["part"], (one["fillers"], one["right"]), one["arm"], tuple(one["rates"])): one for one in lines
        }

    @classmethod
    def read(cls, path: Path, study: Mapping[str, Any]) -> Records:
        """Read a file of records, packed with xz."""
        with lzma.open(path, "rt") as file:
            return cls([json.loads(line) for line in file], study)

    @property
    def planned(self) -> list[Chain]:
        """Return all chains of the study."""
        return [(fillers, right) for right in self.study["right"] for fillers in self.study["fillers"]]

    def chains(self, *arms: str) -> list[Chain]:
        """Return the chains on which these arms have been counted at their best rates."""
        return [chain for chain in self.planned if all(self.counted(chain, arm) for arm in arms)]

    def rates(self, chain: Chain, arm: str) -> list[float]:
        """Return the rates at which an arm was counted."""
        return sorted(key[3][0] for key in self.lines if key[:3] == ("counting", chain, arm))

    def best(self, chain: Chain, arm: str, horizon: int) -> float | None:
        """Return the rate with the highest mean held-out accuracy of the tuning seeds at a horizon; None before tuning."""
        for (part, own, name, rates), line in self.lines.items():
            if (part, own, name) == ("tuning", chain, arm):
                means = line["held_out"][self.steps.index(horizon)]
                return rates[means.index(max(means))]
        return None

    def counted(self, chain: Chain, arm: str) -> bool:
        """Return whether an arm was counted at its best rate for each horizon."""
        return all(self.best(chain, arm, one) in self.rates(chain, arm) for one in self.study["horizons"])

    def line(self, chain: Chain, arm: str, rate: float) -> Mapping[str, Any]:
        """Return what was counted at a rate."""
        return self.lines["counting", chain, arm, (rate,)]

    def accuracies(
        self, chain: Chain, arm: str, step: int, rate: float | None = None, of: str = "held_out"
    ) -> list[float]:
        """Return the accuracy of each seed at a step, at the best rate for that horizon unless one is given."""
        chosen = rate or self.best(chain, arm, step)
        assert chosen is not None
        return [value / SCALE for value in self.line(chain, arm, chosen)[of][self.steps.index(step)]]

    def difference(
        self, chain: Chain, arms: tuple[str, str], step: int, rate: float | None = None, of: str = "held_out"
    ) -> Effect:
        """Return the first of two arms minus the second, paired by seed."""
        own, other = (self.accuracies(chain, arm, step, rate, of) for arm in arms)
        return effect([a - b for a, b in zip(own, other, strict=True)])

    def passed(
        self, chain: Chain, threshold: float
    ) -> Iterator[tuple[Mapping[str, list[float]], Mapping[str, list[float]]]]:
        """Yield figures of the primary arm and the baseline at the baseline's best rate, of the seeds that both passed."""
        arms = (self.study["primary"], self.study["baseline"])
        rate = self.best(chain, arms[1], self.steps[-1])
        if rate is None or not all(rate in self.rates(chain, arm) for arm in arms):
            return
        found = [self.line(chain, arm, rate)["passed"][str(threshold)] for arm in arms]
        both = [i for i, steps in enumerate(zip(*(one["step"] for one in found), strict=True)) if min(steps) > 0]
        if len(both) > 2:
            own, other = ({name: [one[name][i] for i in both] for name in one} for one in found)
            yield own, other


def chain_text(chain: Chain) -> list[str]:
    """Return the first two cells of a row."""
    return [f"{chain[1]:g}", str(chain[0])]


CHAIN_HEAD = ["right at the start", "fillers"]


def mean_text(values: Sequence[float]) -> str:
    """Return the mean of accuracies."""
    return f"{sum(values) / len(values):.3f}"


def end_table(records: Records) -> str:
    """Return what the primary arm gains early and at the end, each arm at its best rate for the horizon."""
    study = records.study
    arms, (early, end) = (study["primary"], study["baseline"]), study["horizons"]
    chains = records.chains(*arms)
    first = {chain: records.difference(chain, arms, early) for chain in chains}
    last = {chain: records.difference(chain, arms, end) for chain in chains}
    likely = sum(right >= 0.5 for _, right in records.planned)
    first_p = corrected({chain: first[chain].p for chain in chains if chain[1] >= 0.5}, likely)
    equal = corrected(
        {chain: equivalence_p_value(last[chain].values, study["margin"]) or 0.0 for chain in chains},
        len(records.planned),
    )
    last_p = corrected({chain: last[chain].p for chain in chains}, len(records.planned))
    rows = []
    for chain in chains:
        verdict = "equal" if equal[chain] < 0.05 else "open"
        if last_p[chain] < 0.05:
            verdict = ("gain" if last[chain].estimate.mean > 0 else "loss") + (
                ", below the margin" if verdict == "equal" else ""
            )
        rows.append([
            *chain_text(chain), mean_text(records.accuracies(chain, arms[1], early)),
            difference_text(first[chain], first_p.get(chain)), mean_text(records.accuracies(chain, arms[1], end)),
            difference_text(last[chain], last_p[chain]), p_text(equal[chain]), verdict,
        ])  # fmt: skip
    if len(chains) > 1:
        rows.append(["all of these", "", "", difference_text(one := pooled([*first.values()]), one.p), "",
                     difference_text(one := pooled([*last.values()]), one.p), "", ""])  # fmt: skip
    head = [*CHAIN_HEAD, f"GRPO, {early} steps", f"TR-GRPO minus GRPO, {early}", f"GRPO, {end} steps",
            f"TR-GRPO minus GRPO, {end}", f"equal within {study['margin']:g}", "verdict"]  # fmt: skip
    return markdown_table(rows, head)


def path_table(records: Records) -> str:
    """Return the difference at each step at the baseline's best rate for the last one, on held-out and on train prompts."""
    arms, rows = (records.study["primary"], records.study["baseline"]), []
    for chain in records.chains(*arms):
        rate = records.best(chain, arms[1], records.steps[-1])
        if rate in records.rates(chain, arms[0]):
            for of in ("held_out", "train"):
                cells = [difference_text(records.difference(chain, arms, step, rate, of)) for step in records.steps]
                rows.append([*chain_text(chain), f"{rate:g}", of.replace("_", " "), *cells])
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
            change = f"{found.estimate.mean:+.{places}f} [{low:+.{places}f}, {high:+.{places}f}] {p_text(p[name][key])}"
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
    arms, end = (records.study["primary"], records.study["baseline"]), records.steps[-1]
    sums: dict[Chain, Effect] = {}
    cells: dict[Chain, list[str]] = {}
    for chain in records.planned:
        tuned = records.study["rates"][chain[1]]
        if not all(tuned == records.rates(chain, arm) for arm in arms):
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
    """Return what else can be changed, minus GRPO, each at its best rate for the horizon; means over its chains follow."""
    baseline, (early, end) = records.study["baseline"], records.study["horizons"]
    pairs = [(arm, baseline) for arm in records.study["arms"] if arm not in (baseline, "tr_grpo_decay")]
    rows = []
    for arms in [*pairs, ("tr_grpo_decay", "grpo_decay"), ("tr_grpo_centered", "tr_grpo")]:
        chains = records.chains(*arms)
        for step in (early, end) if chains else ():
            found = {chain: records.difference(chain, arms, step) for chain in chains}
            cells = [difference_text(found[chain]) if chain in found else "-" for chain in records.planned]
            rows.append([f"{arms[0]} minus {arms[1]}", str(step), *cells])
    head = ["", "steps", *(f"{right:g}, {fillers} fillers" for fillers, right in records.planned)]
    return markdown_table(rows, head)


def missing_text(records: Records) -> str:
    """Return a sentence about the chains whose primary figure has no records yet; "" if all have."""
    arms = (records.study["primary"], records.study["baseline"])
    missing = [chain for chain in records.planned if chain not in records.chains(*arms)]
    text = ", ".join(f"{right:g} with {fillers} fillers" for fillers, right in missing)
    return f"**Not recorded yet: {text}.**" if missing else ""


def plot_curves(records: Records, path: Path) -> None:
    """Draw mean accuracies against steps, both arms at the baseline's best rate for the last step, into an SVG file."""
    from matplotlib.figure import Figure

    arms = {records.study["baseline"]: "0.35", records.study["primary"]: "tab:red"}
    chains = records.chains(*arms)
    columns = max(1, min(3, len(chains)))
    rows = max(1, -(-len(chains) // columns))
    figure = Figure(figsize=(3.4 * columns, 2.9 * rows + 0.2), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axis in axes.flat[len(chains) :]:
        axis.set_visible(False)
    # Columns of equal right decisions.
    for axis, chain in zip(axes.flat, sorted(chains, key=lambda chain: (chain[0], -chain[1])), strict=False):
        rate = records.best(chain, records.study["baseline"], records.steps[-1])
        assert rate is not None
        for arm, colour in arms.items():
            curve = records.line(chain, arm, rate)["curve"]
            steps = [10 * (place + 1) for place in range(len(curve))]
            for of, style in enumerate((":", "-")):
                axis.plot(steps, [one[of] for one in curve], style, color=colour, linewidth=1.3,
                          label=f"{arm}, {'held out' if of else 'train'}")  # fmt: skip
        axis.axvline(records.study["horizons"][0], color="0.8", linewidth=1, zorder=0)
        axis.set_title(f"right {chain[1]:g}, {chain[0]} fillers, rate {rate:g}", fontsize=9)
    if chains:
        axes[0, 0].legend(fontsize=7)
    figure.supxlabel("steps", fontsize=9)
    figure.supylabel("exact accuracy", fontsize=9)
    save_svg(figure, path)
