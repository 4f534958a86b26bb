"""Arms compared with a baseline, paired by seed; the tables of studies and the pages of reports take their figures from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verl_trgrpo.runs.compare.figures import FIGURES, RunFigures
from verl_trgrpo.runs.statistics import (
    Estimate,
    crossed_interval,
    equivalence_p_value,
    holm,
    mean_interval,
    paired_p_value,
)

OUTCOME = "final_accuracy"
# p-values below are significant.
LEVEL = 0.05
# What is tested against the baseline; for the primary arm `OUTCOME` is the primary outcome.
TESTED = (OUTCOME, "area", "gap", "grad_roughness")


@dataclass(frozen=True)
class PValue:
    """A p-value, the one after Holm's correction over all secondary tests, and the least that the design allows for that.

    `corrected` is None for the primary outcome, which is alone. `least` is above 0 for sign-flip tests, of which n pairs give
    2 / 2^n at best.
    """

    p: float
    corrected: float | None
    least: float = 0.0

    @property
    def significant(self) -> bool:
        return (self.p if self.corrected is None else self.corrected) < LEVEL

    @property
    def possible(self) -> bool:
        return self.least < LEVEL


@dataclass(frozen=True)
class Difference:
    """An arm minus the baseline over the seeds that both have.

    Args:
        estimate: mean difference.
        pairs: seeds that both have.
        test: sign-flip test of the difference; None for fewer than two pairs, and for figures that are not `TESTED`.
        equivalence: test that the difference is within the study's margin; None without one, and but for `OUTCOME`.
        over_prompts: mean difference with an interval over other seeds and other test prompts; None but for `OUTCOME`, and
            without the runs' outcomes on each prompt.
    """

    estimate: Estimate
    pairs: int
    test: PValue | None = None
    equivalence: PValue | None = None
    over_prompts: Estimate | None = None


@dataclass(frozen=True)
class Entry:
    """One figure of one arm: the number of runs that have it, their mean, and the difference from the baseline.

    The difference is None for the baseline itself and for an arm without a seed in common with it.
    """

    runs: int
    estimate: Estimate
    difference: Difference | None


# By arm, then by name of figure.
Comparison = Mapping[str, Mapping[str, Entry]]

# By arm, seed, and prompt with its ground truth: share of right responses.
Outcomes = Mapping[str, Mapping[int, Mapping[tuple[str, str], float]]]


def compare(
    figures: Mapping[str, RunFigures],
    baseline: str,
    primary: str = "",
    margin: float | None = None,
    outcomes: Outcomes | None = None,
) -> Comparison:
    """Return means, differences from the baseline and tests of all arms and figures.

    Args:
        figures: of every run, by arm and seed.
        baseline: an arm.
        primary: the arm whose `OUTCOME` was named beforehand as what decides; its tests are not corrected, all others are,
            together. "" for none.
        margin: largest mean difference of `OUTCOME` that does not matter, named beforehand; None for no tests of equivalence.
        outcomes: of every run that has them.
    """
    differences: dict[tuple[str, str], list[float]] = {}
    for arm, runs in figures.items():
        for name in FIGURES if arm != baseline else ():
            pairs = [
                run[name] - figures[baseline][seed][name]
                for seed, run in runs.items()
                if name in run and name in figures[baseline].get(seed, {})
            ]
            if pairs:
                differences[arm, name] = pairs
    p_values: dict[tuple[str, str, str], float] = {}
    for (arm, name), pairs in differences.items():
        if name in TESTED and (p := paired_p_value(pairs)) is not None:
            p_values[arm, name, "difference"] = p
        if name == OUTCOME and margin and (p := equivalence_p_value(pairs, margin)) is not None:
            p_values[arm, name, "equivalence"] = p
    corrected = holm({key: p for key, p in p_values.items() if key[:2] != (primary, OUTCOME)})
    tests = {}
    for key, p in p_values.items():
        family = len(corrected) if key in corrected else 1
        least = min(1.0, family * 2 / 2 ** len(differences[key[:2]])) if key[2] == "difference" else 0.0
        tests[key] = PValue(p, corrected.get(key), least)

    found: dict[str, dict[str, Entry]] = {arm: {} for arm in figures}
    for arm, runs in figures.items():
        for name in FIGURES:
            if values := [run[name] for run in runs.values() if name in run]:
                difference = None
                if (arm, name) in differences:
                    pairs = differences[arm, name]
                    over_prompts = _over_prompts(outcomes, arm, baseline) if outcomes and name == OUTCOME else None
                    test, equivalence = (tests.get((arm, name, what)) for what in ("difference", "equivalence"))
                    difference = Difference(mean_interval(pairs), len(pairs), test, equivalence, over_prompts)
                found[arm][name] = Entry(len(values), mean_interval(values), difference)
    return found


def _over_prompts(outcomes: Outcomes, arm: str, baseline: str) -> Estimate | None:
    """Mean difference over seeds and prompts; None unless at least two seeds have outcomes on the same prompts in both arms."""
    own, base = outcomes.get(arm, {}), outcomes.get(baseline, {})
    seeds = [seed for seed in own if own[seed] and base.get(seed)]
    prompts = [*own[seeds[0]]] if seeds else []
    if len(seeds) < 2 or any({*run[seed]} != {*prompts} for run in (own, base) for seed in seeds):
        return None
    return crossed_interval([[own[seed][prompt] - base[seed][prompt] for prompt in prompts] for seed in seeds])
