"""Say what a number of runs can choose and what it can show: one rule for commands and pages."""

from __future__ import annotations

import math
from collections.abc import Mapping

from verl_trgrpo.compare.comparison import OUTCOME, Comparison
from verl_trgrpo.compare.statistics import t_quantile

# Runs of each arm: what fits, and what to plan for a claim.
BUDGETS = (1, 3, 6)
# The example of all pages, in points of accuracy: a true gain, and the standard deviation of a run's end. Public runs spread by 1
# (twice the same GRPO run) to several points (AIME with one sample for each of 30 problems).
GAIN, SPREAD = 2.0, 1.5
# A claim should be shown nine times in ten.
POWER = 0.9


def chosen_share(pairs: int, gain: float = GAIN, spread: float = SPREAD) -> float:
    """Return the probability that the better of two arms has the higher mean of `pairs` independent runs.

    Args:
        pairs: runs of each arm.
        gain: true difference of the arms.
        spread: standard deviation of a run, in the unit of `gain`.
    """
    from scipy import stats

    return float(stats.norm.cdf(gain / (spread * math.sqrt(2 / pairs))))


def shown_share(pairs: int, gain: float = GAIN, spread: float = SPREAD) -> float:
    """Return the probability that the 95 % t interval of paired differences is above 0, see `chosen_share`; 0 for one pair."""
    from scipy import stats

    if pairs < 2:
        return 0.0
    return float(stats.nct.sf(t_quantile(pairs), pairs - 1, gain / (spread * math.sqrt(2 / pairs))))


def needed(gain: float = GAIN, spread: float = SPREAD, power: float = POWER) -> int:
    """Return the fewest pairs that show a gain with a probability of `power`."""
    pairs = 2
    while shown_share(pairs, gain, spread) < power:
        pairs += 1
    return pairs


def budget_line(pairs: int) -> str:
    """Return what so many pairs of runs can choose and show, in one or a few sentences.

    Args:
        pairs: seeds that both arms have.
    """
    plan = f"To choose a model, take the better one. To claim a gain, plan {needed()} pairs before the first run."
    if pairs < 1:
        return f"No seed is in both arms: nothing can be concluded. {plan}"
    example = f"with a true gain of {GAIN:g} points and a spread of {SPREAD:g} between runs"
    higher = f"the better arm has the higher mean in {chosen_share(pairs):.0%} of cases"
    if pairs == 1:
        return f"1 pair of runs: nothing can be concluded. Even {example}, {higher}. {plan}"
    return (
        f"{pairs} pairs of runs: {example}, {higher}, and the interval is above 0 in {shown_share(pairs):.0%}. {plan}"
    )


def budget_of(found: Comparison, baseline: str, primary: str = "") -> str:
    """Return the line for a comparison: of its primary arm, or of the arm with the fewest pairs; "" without a second arm."""
    others: Mapping[str, int] = {
        arm: row[OUTCOME].difference.pairs if OUTCOME in row and row[OUTCOME].difference else 0  # type: ignore[union-attr]
        for arm, row in found.items()
        if arm != baseline
    }
    if not others:
        return ""
    return budget_line(others[primary] if primary in others else min(others.values()))
