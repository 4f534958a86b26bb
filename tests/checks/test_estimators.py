"""What the results of each registered estimator depend on, asked of the estimators."""

import copy
import inspect

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, get_adv_estimator_fn

from tests.conftest import composed
from verl_trgrpo.checks.estimators import OF_GROUPS, WITHOUT_DISCOUNT, WITHOUT_STD
from verl_trgrpo.verl_plugin.advantage_estimator import Estimator

REWARDS = torch.tensor([1.0, 0, 0, 1, 1, 1, 0, 1])
LENGTHS = torch.tensor([6, 4, 3, 5, 2, 6, 4, 5])


def advantages(name, groups="aabbccdd", divides=True, gamma=1.0):
    """The advantages of eight responses; everything that an estimator may ask for is there."""
    estimator = get_adv_estimator_fn(name)
    if isinstance(estimator, Estimator):
        estimator.state.clear()
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(6)[None] < LENGTHS[:, None]).float()
    rewards = torch.zeros(8, 6).scatter(1, LENGTHS[:, None] - 1, REWARDS[:, None])
    config = copy.deepcopy(composed(["algorithm=grpo"]).config.algorithm)
    settings = {"norm_adv_by_std_in_grpo": divides, "gamma": gamma, "gdpo_reward_keys": ["acc"]}
    for key, value in settings.items():
        OmegaConf.update(config, key, value, force_add=True)
    given = {
        "token_level_rewards": rewards, "response_mask": mask, "index": np.array([*groups], dtype=object), "config": config,
        "norm_adv_by_std_in_grpo": divides, "gamma": gamma, "lam": 1.0, "values": torch.rand(8, 6, generator=generator) * mask,
        "reward_baselines": torch.rand(8, generator=generator), "old_log_probs": -torch.rand(8, 6, generator=generator),
        "sum_pi_squared": torch.rand(8, 6, generator=generator), "non_tensor_batch": {"acc": REWARDS.numpy()},
        "batch": {"prompts": mask, "attention_mask": torch.cat([mask, mask], 1).long(), "response_mask": mask},
    }  # fmt: skip
    taken = inspect.signature(estimator).parameters
    if not any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        given = {key: value for key, value in given.items() if key in taken}
    return estimator(**given)[0]


@pytest.mark.parametrize("name", sorted({*ADV_ESTIMATOR_REGISTRY} & {*WITHOUT_STD, *WITHOUT_DISCOUNT}))
def test_the_names_say_what_an_estimator_depends_on(name):
    found = advantages(name)
    assert torch.equal(found, advantages(name, divides=False)) is (name in WITHOUT_STD)
    assert torch.equal(found, advantages(name, gamma=0.9)) is (name in WITHOUT_DISCOUNT)
    assert torch.equal(found, advantages(name, groups="abbccdda")) is (name not in OF_GROUPS)


def test_every_estimator_of_verl_and_of_this_package_is_named():
    named = {*WITHOUT_STD, *WITHOUT_DISCOUNT}
    assert {*OF_GROUPS} <= named
    packages = {name: get_adv_estimator_fn(name).__module__.partition(".")[0] for name in ADV_ESTIMATOR_REGISTRY}
    assert {name for name, package in packages.items() if package in ("verl", "verl_trgrpo")} == named
