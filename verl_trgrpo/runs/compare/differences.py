"""Differences of arms from a baseline, paired by seed; the tables of studies and the pages of reports take them from here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from verl_trgrpo.runs.compare.figures import FIGURES
from verl_trgrpo.runs.statistics import Estimate, holm, mean_interval, paired_p_value

# What is tested against the baseline; for the primary arm the first of them is the primary outcome.
TESTED = ("final_accuracy", "area", "gap", "grad_roughness")

SIGNIFICANT = 0.05

# By arm, then by seed, then by name.
RunFigures = Mapping[str, Mapping[int, Mapping[str, float]]]


class Difference(NamedTuple):
    """An arm minus the baseline over the seeds that both have.

    interval: mean difference.
    pairs: seeds that both have.
    p: of the sign-flip test; None for fewer than two pairs, and for figures that are not `TESTED`.
    p_holm: corrected for the number of arms tested on this figure; None for the primary test, which is not.
    """

    interval: Estimate
    pairs: int
    p: float | None
    p_holm: float | None

    @property
    def significant(self) -> bool:
        decisive = self.p if self.p_holm is None else self.p_holm
        return decisive is not None and decisive < SIGNIFICANT

    @property
    def smallest_p(self) -> float:
        """What the test gives at best with so many pairs."""
        return 2.0 / 2**self.pairs


def differences(figures: RunFigures, baseline: str, primary: str = "") -> dict[str, dict[str, Difference]]:
    """Return the differences from the baseline, by arm and name of figure.

    Args:
        figures: of every run.
        baseline: an arm; arms without a seed in common with it have no differences.
        primary: the arm whose first tested figure was named beforehand as the outcome, and is not corrected; "" for none.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for arm, runs in figures.items():
        for name in FIGURES if arm != baseline else ():
            pairs = [
                run[name] - figures[baseline][seed][name]
                for seed, run in runs.items()
                if name in run and name in figures[baseline].get(seed, {})
            ]
            if pairs:
                found[arm, name] = pairs
    tests = {key: p for key, pairs in found.items() if key[1] in TESTED and (p := paired_p_value(pairs)) is not None}
    corrected: dict[tuple[str, str], float] = {}
    for tested in TESTED:
        corrected |= holm(
            {key: p for key, p in tests.items() if key[1] == tested and key != (primary, TESTED[0])},
        )
    result: dict[str, dict[str, Difference]] = {}
    for key, pairs in found.items():
        arm, name = key
        result.setdefault(arm, {})[name] = Difference(
            mean_interval(pairs), len(pairs), tests.get(key), corrected.get(key)
        )
    return result
