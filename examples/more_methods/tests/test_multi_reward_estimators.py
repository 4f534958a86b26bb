"""The estimators as veRL calls them, with options from its configuration and parts of rewards from the replay buffer."""

import statistics

import pytest
import torch
from more_methods.multi_reward import estimators  # noqa: F401 (registers them)
from more_methods.multi_reward.advantages import constrained_advantages, decoupled_advantages
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from tests.conftest import composed
from tests.verl_plugin.test_advantage_estimators import MASK, SCORES, UIDS, advantages_of, rewards_of
from tests.verl_plugin.test_estimator_state import Run

LONG = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]
PARTS = [{"acc": score, "long": cost} for score, cost in zip(SCORES, LONG, strict=True)]
KEYS = [f"{group}_{row}_0" for row, group in enumerate(UIDS)]
COSTS = "algorithm.constrained_grpo.costs=[{name: long, limit: 0.1}]"
OPTIONS = {"gdpo": "algorithm.gdpo_reward_keys=[acc,long]", "constrained_grpo": COSTS}


@pytest.fixture
def draw(monkeypatch):
    """``draw(name, keys, parts)`` hands parts to an estimator as the replay buffer does; no multiplier is remembered."""
    monkeypatch.setattr(get_adv_estimator_fn("constrained_grpo"), "state", {})

    def of(name, keys, parts):
        monkeypatch.setattr(get_adv_estimator_fn(name), "parts", dict(zip(keys, parts, strict=True)))

    return of


def node(algorithm, *overrides):
    return composed([f"algorithm={algorithm}", *overrides]).config.algorithm


def test_gdpo_adds_up_the_parts_of_each_response(draw):
    draw("tr_gdpo", KEYS, PARTS)
    expected = decoupled_advantages(torch.tensor([SCORES, LONG], dtype=torch.float64).T, MASK, UIDS, (1.0, 1.0))
    assert torch.equal(advantages_of("tr_gdpo", node("gdpo", OPTIONS["gdpo"]), uids=KEYS), expected)
    order = [4, 0, 5, 2, 1, 3]  # veRL reorders a batch after it was drawn
    found = advantages_of(
        "tr_gdpo",
        node("gdpo", OPTIONS["gdpo"]),
        [SCORES[row] for row in order],
        [KEYS[row] for row in order],
        MASK[order],
    )
    torch.testing.assert_close(found, expected[order])


def test_the_multiplier_counts_in_a_batch_and_follows_its_costs(draw):
    draw("constrained_grpo", KEYS, PARTS)
    state = get_adv_estimator_fn("constrained_grpo").state
    state["multipliers"] = {"long": 0.5}
    expected = constrained_advantages(rewards_of(SCORES), torch.tensor([LONG]).T, MASK, UIDS, [0.5])
    assert torch.equal(advantages_of("constrained_grpo", node("constrained_grpo", COSTS), uids=KEYS), expected)
    assert state["multipliers"]["long"] == pytest.approx(0.5 + 0.1 * (0.5 - 0.1))


@pytest.mark.parametrize("algorithm", OPTIONS)
def test_a_rejected_response_counts_in_its_group_and_a_filler_row_does_not(draw, algorithm):
    """A rollout correction takes all tokens of a response out of the mask; veRL's filler rows have an empty mask, too."""
    config = node(algorithm, OPTIONS[algorithm])
    draw(config.adv_estimator, KEYS, PARTS)
    state = get_adv_estimator_fn("constrained_grpo").state
    state["multipliers"] = {"long": 0.5}
    rejected = torch.cat([MASK, torch.zeros(1, 3, dtype=MASK.dtype)])
    rejected[3] = 0
    found = advantages_of(config.adv_estimator, config, [*SCORES, 0.0], [*KEYS, "pad0"], rejected)
    if algorithm == "gdpo":
        rewards = torch.tensor([[*SCORES, 0.0], [*LONG, 0.0]], dtype=torch.float64).T
        expected = decoupled_advantages(rewards, rejected, [*UIDS, "pad"], (1.0, 1.0))
    else:
        expected = constrained_advantages(rewards_of(SCORES), torch.tensor([LONG]).T, MASK, UIDS, [0.5])
        expected = torch.cat([expected, torch.zeros(1, 3)]) * rejected
        assert state["multipliers"]["long"] == pytest.approx(0.5 + 0.1 * (0.5 - 0.1))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("algorithm", OPTIONS)
def test_parts_that_are_missing_are_named(draw, algorithm):
    config = node(algorithm)
    draw(config.adv_estimator, KEYS, [{"polite": 1.0}] * 6)
    with pytest.raises(ValueError, match=r"(acc, format_ok|cut_off) .*returns polite$"):
        advantages_of(config.adv_estimator, config, uids=KEYS)
    with pytest.raises(ValueError, match=r"trainer\.v1\.sampler"):
        advantages_of(config.adv_estimator, config, uids=UIDS)


def test_a_resumed_run_goes_on_with_the_multipliers_of_an_uninterrupted_one(draw, tmp_path):
    draw("constrained_grpo", KEYS, PARTS)
    overrides = ("algorithm=constrained_grpo", COSTS)
    run = Run(tmp_path, *overrides)
    first, second, third = (run.step(SCORES, KEYS) for _ in range(3))
    run = Run(tmp_path, *overrides, "trainer.resume_mode=disable")
    assert torch.equal(run.step(SCORES, KEYS), first)
    run.save(1)
    run.step(SCORES, KEYS)  # lost
    resumed = Run(tmp_path, *overrides)
    assert torch.equal(resumed.step(SCORES, KEYS), second) and torch.equal(resumed.step(SCORES, KEYS), third)
    assert not torch.equal(first, second)


def shares_of_long_answers(algorithm, draw, *options):
    """Train the log-odds of a long answer, which is right more often than a short one, by the estimator's advantages."""
    get_adv_estimator_fn("constrained_grpo").state.clear()
    costs = "algorithm.constrained_grpo.costs=[{name: response_length, above: 1, limit: 0.2}]"
    config = node(algorithm, *([costs, *options] if algorithm == "constrained_grpo" else []))
    generator, log_odds, shares = torch.Generator().manual_seed(0), torch.tensor(0.0), []
    groups = [str(row // 8) for row in range(64)]
    keys = [f"{group}_{row % 8}_0" for row, group in enumerate(groups)]
    for _ in range(400):
        long = torch.rand(64, generator=generator) < log_odds.sigmoid()
        right = (torch.rand(64, generator=generator) < torch.where(long, 0.8, 0.3)).float()
        mask = torch.stack([torch.ones(64), long.float()], dim=1)
        draw("constrained_grpo", keys, [{"response_length": 1.0 + float(one)} for one in long])
        uids = keys if algorithm == "constrained_grpo" else groups
        advantages = advantages_of(config.adv_estimator, config, uids=uids, mask=mask, scores=right.tolist())
        log_odds = log_odds + 0.3 * (advantages[:, 0] * (long.float() - log_odds.sigmoid())).mean()
        shares.append(long.float().mean().item())
    return shares


def test_a_limit_on_long_answers_holds_where_the_reward_prefers_them(draw):
    assert statistics.fmean(shares_of_long_answers("grpo", draw)[200:]) > 0.9
    # The multiplier swings about its final value, and the share about the limit.
    published = shares_of_long_answers("constrained_grpo", draw)[200:]
    assert 0.05 < statistics.fmean(published) < 0.25
    damped = shares_of_long_answers("constrained_grpo", draw, "algorithm.constrained_grpo.damping=2")[200:]
    assert 0.15 < statistics.fmean(damped) < 0.25
    assert statistics.stdev(damped) < 0.7 * statistics.stdev(published)
