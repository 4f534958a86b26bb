"""The estimators as veRL calls them: through its own compute_advantage, with options from its configuration."""

import math

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.ray_trainer import compute_advantage

from tests.conftest import composed
from verl_trgrpo.core import DifficultyOptions, difficulty_weighted_advantages, rejection_advantages

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
@pytest.mark.parametrize("estimator", ["tr_grpo", "reinforce_rej", "raft", "maxrl", "w_reinforce", "ha_dw"])
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
    config = OmegaConf.create({"ha_dw": {"window": 2}})
    options = DifficultyOptions(window=2)
    second_scores = [1.0, 1.0, 1.0, 0.0, 1.0, 0.0]
    first, history = difficulty_weighted_advantages(rewards_of(SCORES), MASK, UIDS, options)
    second, _ = difficulty_weighted_advantages(rewards_of(second_scores), MASK, UIDS, options, history)
    assert torch.equal(advantages_of("ha_dw", config), first)
    assert torch.equal(advantages_of("ha_dw", config, second_scores), second)
    fresh, _ = difficulty_weighted_advantages(rewards_of(second_scores), MASK, UIDS, options)
    assert not torch.equal(second, fresh)


@pytest.mark.parametrize("word", ["dapo", "tr_dapo"])
def test_the_overlong_penalty_of_dapo_teaches_as_published(word):
    """Right and wrong, each short and at the limit: rewards of 1 and -1 with a penalty of 1, or of 1 and 0 with this one."""
    penalty = composed([f"algorithm={word}"]).config.reward.reward_kwargs.overlong_buffer_cfg.penalty_factor

    def advantages(right, wrong, penalty):
        scores, mask = [right, right - penalty, wrong, wrong - penalty], torch.ones(4, 1)
        return advantages_of("grpo", OmegaConf.create({}), scores, ["a"] * 4, mask)[:, 0]

    torch.testing.assert_close(advantages(1.0, 0.0, penalty), advantages(1.0, -1.0, 1.0), rtol=1e-5, atol=1e-5)
    assert advantages(1.0, 0.0, penalty).tolist() == pytest.approx([1.162, 0.387, -0.387, -1.162], abs=1e-3)
