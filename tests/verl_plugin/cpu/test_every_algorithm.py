"""Every word of the switch trains the tiny model: one update each, through veRL's training worker and engine."""

import math
from importlib import resources

import pytest

from tests.verl_plugin.cpu.invariance_worker import ROWS, Case, make_batch, run_ranks

pytestmark = pytest.mark.slow

ALGORITHMS = sorted(path.stem for path in (resources.files("verl_trgrpo") / "config/algorithm").iterdir())
# Whose update of given advantages is GRPO's: they differ in the advantages, which the batch has already, or in a clip that
# this batch does not reach.
LIKE_GRPO = {"grpo", "ha_dw", "reinforce_rej", "w_reinforce"}
# Two names for one thing.
SAME = {"grpo_sg": "tr_grpo", "tr_ha_dw": "tr_grpo"}


@pytest.fixture(scope="module")
def updates():
    cases = [Case((f"algorithm={name}",), ROWS // 2) for name in ALGORITHMS]
    return dict(zip(ALGORITHMS, run_ranks(make_batch(), cases, 1), strict=True))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_word_changes_the_update_as_it_says(updates, name):
    update, grpo = updates[name], updates["grpo"]
    assert math.isfinite(update.metrics["loss"]) and 0 < update.metrics["grad_norm"] < math.inf
    distance = float((update.gradient - grpo.gradient).norm() / grpo.gradient.norm())
    assert distance == 0 if name in LIKE_GRPO else distance > 1e-3
    twin = SAME.get(name, name)
    assert float((update.gradient - updates[twin].gradient).norm()) == 0
