"""The estimators as veRL calls them: through its own compute_advantage, with options from its configuration."""

import math
import statistics

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.ray_trainer import compute_advantage

from tests.conftest import composed
from verl_trgrpo.core import (
    DifficultyOptions,
    constrained_advantages,
    decoupled_advantages,
    difficulty_weighted_advantages,
    rejection_advantages,
)
from verl_trgrpo.verl_plugin.advantage_estimator import label_with

UIDS = ["a", "b", "c", "a", "b", "c"]
SCORES = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0]
MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 0, 0]])


def rewards_of(scores):
    rewards = torch.zeros(len(scores), 3)
    rewards[:, 0] = torch.tensor(scores)
    return rewards


def advantages_of(estimator, config, scores=SCORES, uids=UIDS, mask=MASK):
    data = DataProto.from_dict(
        {"token_level_rewards": rewards_of(scores)[:, : mask.shape[1]], "response_mask": mask},
        {"uid": np.array(uids, dtype=object)},
    )
    compute_advantage(data, adv_estimator=estimator, config=config)
    assert data.batch["returns"] is not None
    return data.batch["advantages"]


def test_reinforce_rej():
    expected = rejection_advantages(rewards_of(SCORES), MASK, UIDS)
    assert torch.equal(advantages_of("reinforce_rej", OmegaConf.create({})), expected)
    assert (expected[:, 0] != 0).tolist() == [True, False, False, False, False, False]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("estimator", ["tr_grpo", "reinforce_rej", "w_reinforce", "ha_dw"])
def test_a_reward_that_is_not_finite_is_refused_and_changes_no_state(estimator, value):
    state = dict(get_adv_estimator_fn(estimator).state)
    with pytest.raises(ValueError, match=rf"1 of 6 rewards .* \(response 1: {value}\)"):
        advantages_of(estimator, OmegaConf.create({}), [1.0, value, 0.0, 0.0, 1.0, 0.0])
    assert get_adv_estimator_fn(estimator).state == state


def test_w_reinforce_takes_its_options():
    found = advantages_of("w_reinforce", OmegaConf.create({"w_reinforce": {"_target_": "x", "positive": 0.25}}))
    assert found[:, 0].tolist() == [0.25, 0.25, -1.0, -1.0, 0.25, -1.0]
    assert advantages_of("w_reinforce", OmegaConf.create({}))[0, 0].item() == pytest.approx(0.1)


def test_ha_dw_remembers_the_batches_before(monkeypatch):
    monkeypatch.setattr(get_adv_estimator_fn("ha_dw"), "state", {})
    config = OmegaConf.create({"ha_dw": {"belief": "constant", "forgetting": 0.5}})
    options = DifficultyOptions(belief="constant", forgetting=0.5)
    second_scores = [1.0, 1.0, 1.0, 0.0, 1.0, 0.0]
    first, history = difficulty_weighted_advantages(rewards_of(SCORES), MASK, UIDS, options)
    second, _ = difficulty_weighted_advantages(rewards_of(second_scores), MASK, UIDS, options, history)
    assert torch.equal(advantages_of("ha_dw", config), first)
    assert torch.equal(advantages_of("ha_dw", config, second_scores), second)
    fresh, _ = difficulty_weighted_advantages(rewards_of(second_scores), MASK, UIDS, options)
    assert not torch.equal(second, fresh)


def labelled(parts):
    return [label_with(uid, each) for uid, each in zip(UIDS, parts, strict=True)]


def test_gdpo_and_constraints_find_each_row_s_parts_in_its_label(monkeypatch):
    monkeypatch.setattr(get_adv_estimator_fn("constrained_grpo"), "state", {"multipliers": {"long": 0.5}})
    long = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    labels = labelled([{"acc": score, "long": cost} for score, cost in zip(SCORES, long, strict=True)])
    algorithm = composed(["algorithm=gdpo", "algorithm.gdpo_reward_keys=[acc,long]"]).config.algorithm
    rewards = torch.tensor([SCORES, long], dtype=torch.float64).T
    expected = decoupled_advantages(rewards, MASK, UIDS, (1.0, 1.0))
    assert torch.equal(advantages_of("tr_gdpo", algorithm, uids=labels), expected)
    algorithm = composed(
        ["algorithm=constrained_grpo", "algorithm.constrained_grpo.costs=[{name: long, limit: 0.1}]"]
    ).config.algorithm
    expected = constrained_advantages(rewards_of(SCORES), rewards[:, 1:], MASK, UIDS, [0.5])
    assert torch.equal(advantages_of("constrained_grpo", algorithm, uids=labels), expected)
    assert get_adv_estimator_fn("constrained_grpo").state["multipliers"]["long"] == pytest.approx(
        0.5 + 0.1 * (0.5 - 0.1)
    )


@pytest.mark.parametrize("algorithm", ["gdpo", "constrained_grpo"])
def test_a_rejected_response_counts_in_its_group_and_a_filler_row_does_not(monkeypatch, algorithm):
    """A rollout correction takes all tokens of a response out of the mask; veRL's filler rows have an empty mask, too."""
    monkeypatch.setattr(get_adv_estimator_fn("constrained_grpo"), "state", {"multipliers": {"long": 0.5}})
    costs = "algorithm.constrained_grpo.costs=[{name: long, limit: 0.1}]"
    options = ["algorithm.gdpo_reward_keys=[acc,long]"] if algorithm == "gdpo" else [costs]
    config = composed([f"algorithm={algorithm}", *options]).config.algorithm
    long = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    labels = [*labelled([{"acc": score, "long": cost} for score, cost in zip(SCORES, long, strict=True)]), "pad"]
    mask = torch.cat([MASK, torch.zeros(1, 3, dtype=MASK.dtype)])
    rejected = mask.clone()
    rejected[3] = 0
    found = advantages_of(config.adv_estimator, config, [*SCORES, 0.0], labels, rejected)
    if algorithm == "gdpo":
        rewards = torch.tensor([[*SCORES, 0.0], [*long, 0.0]], dtype=torch.float64).T
        expected = decoupled_advantages(rewards, rejected, [*UIDS, "pad"], (1.0, 1.0))
    else:
        expected = constrained_advantages(rewards_of(SCORES), torch.tensor([long]).T, MASK, UIDS, [0.5])
        expected = torch.cat([expected, torch.zeros(1, 3)]) * rejected
        assert get_adv_estimator_fn("constrained_grpo").state["multipliers"]["long"] == pytest.approx(
            0.5 + 0.1 * (0.5 - 0.1)
        )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("algorithm", ["gdpo", "constrained_grpo"])
def test_parts_that_are_missing_are_named(algorithm):
    config = composed([f"algorithm={algorithm}"]).config.algorithm
    with pytest.raises(ValueError, match=r"(acc, format_ok|cut_off) .*returns polite$"):
        advantages_of(config.adv_estimator, config, uids=labelled([{"polite": 1.0}] * 6))
    with pytest.raises(ValueError, match=r"trainer\.v1\.sampler"):
        advantages_of(config.adv_estimator, config)


def shares_of_long_answers(algorithm, monkeypatch, *options):
    """Train the log-odds of a long answer, which is right more often than a short one, by the estimator's advantages."""
    monkeypatch.setattr(get_adv_estimator_fn("constrained_grpo"), "state", {})
    costs = "algorithm.constrained_grpo.costs=[{name: response_length, above: 1, limit: 0.2}]"
    given = [costs, *options] if algorithm == "constrained_grpo" else []
    config = composed([f"algorithm={algorithm}", *given]).config.algorithm
    generator, log_odds, shares = torch.Generator().manual_seed(0), torch.tensor(0.0), []
    for _ in range(400):
        long = torch.rand(64, generator=generator) < log_odds.sigmoid()
        right = (torch.rand(64, generator=generator) < torch.where(long, 0.8, 0.3)).float()
        mask = torch.stack([torch.ones(64), long.float()], dim=1)
        labels = [label_with(str(i // 8), {"response_length": 1.0 + float(one)}) for i, one in enumerate(long)]
        uids = labels if algorithm == "constrained_grpo" else [str(i // 8) for i in range(64)]
        advantages = advantages_of(config.adv_estimator, config, uids=uids, mask=mask, scores=right.tolist())
        log_odds = log_odds + 0.3 * (advantages[:, 0] * (long.float() - log_odds.sigmoid())).mean()
        shares.append(long.float().mean().item())
    return shares


def test_a_limit_on_long_answers_holds_where_the_reward_prefers_them(monkeypatch):
    assert statistics.fmean(shares_of_long_answers("grpo", monkeypatch)[200:]) > 0.9
    # The multiplier swings about its final value, and the share about the limit.
    published = shares_of_long_answers("constrained_grpo", monkeypatch)[200:]
    assert 0.05 < statistics.fmean(published) < 0.25
    damped = shares_of_long_answers("constrained_grpo", monkeypatch, "algorithm.constrained_grpo.damping=2")[200:]
    assert 0.15 < statistics.fmean(damped) < 0.25
    assert statistics.stdev(damped) < 0.7 * statistics.stdev(published)
