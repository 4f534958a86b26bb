"""What so many runs can choose and show: by simulation, and the same numbers on all pages."""

import re

import numpy as np
import pytest

from tests.scripts import ROOT
from verl_trgrpo.compare import budget
from verl_trgrpo.compare.comparison import compare_figures


@pytest.mark.parametrize("pairs", [1, 3, 6, 14])
def test_what_can_be_chosen_and_shown_is_that_of_simulated_runs(pairs):
    rng = np.random.default_rng(pairs)
    own, base = rng.normal(2.0, 1.5, (100_000, pairs)), rng.normal(0.0, 1.5, (100_000, pairs))
    differences = own - base
    assert budget.chosen_share(pairs) == pytest.approx((differences.mean(1) > 0).mean(), abs=0.005)
    if pairs == 1:
        assert budget.shown_share(1) == 0
        return
    quantiles = {3: 4.302653, 6: 2.570582, 14: 2.160369}  # tabulated
    low = differences.mean(1) - quantiles[pairs] * differences.std(1, ddof=1) / pairs**0.5
    assert budget.shown_share(pairs) == pytest.approx((low > 0).mean(), abs=0.006)


def test_a_claim_takes_the_fewest_pairs_with_that_power():
    assert budget.shown_share(budget.needed()) >= budget.POWER > budget.shown_share(budget.needed() - 1)
    assert budget.needed(gain=4.0) < budget.needed() < budget.needed(spread=3.0)


def figures(pairs):
    return {
        arm: {seed: {"final_accuracy": 0.5 + 0.01 * seed * height} for seed in range(pairs)}
        for arm, height in (("grpo", 1), ("tr_grpo", 2), ("other", 3))
    }


@pytest.mark.parametrize(("pairs", "concludes"), [(0, False), (1, False), (2, True), (3, True)])
def test_the_line_counts_the_pairs_and_one_pair_concludes_nothing(pairs, concludes):
    arms = figures(3)
    for arm in ("tr_grpo", "other"):
        arms[arm] = {seed + 3 - pairs: run for seed, run in arms[arm].items()}
    line = budget.budget_of(compare_figures(arms, "grpo"), "grpo")
    assert ("nothing can be concluded" in line) != concludes
    assert (f"{pairs} pair" in line) == (pairs > 0) and (
        f"{budget.shown_share(max(pairs, 2)):.0%}" in line
    ) == concludes


def test_the_line_is_that_of_the_primary_arm_or_of_the_fewest_pairs():
    arms = figures(6)
    arms["other"] = dict([*arms["other"].items()][:2])
    found = compare_figures(arms, "grpo", "tr_grpo")
    assert budget.budget_of(found, "grpo", "tr_grpo").startswith("6 pairs")
    assert budget.budget_of(found, "grpo").startswith("2 pairs")
    assert budget.budget_of({"grpo": found["grpo"]}, "grpo") == ""


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/results.md"])
def test_all_pages_say_the_same_number_of_runs(page):
    text = " ".join((ROOT / page).read_text().split())
    assert re.findall(r"claim (?:needs|takes) (?:about )?(\d+) pairs of runs", text) == [str(budget.needed())]
