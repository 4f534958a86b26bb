"""Every word of the switch trains the tiny model: advantages of rewards, then one update through veRL's worker and engine."""

import math
from importlib import resources

import numpy as np
import pytest
import torch

from tests.verl_plugin.cpu.invariance_worker import ROWS, Case, make_batch, run_ranks
from verl_trgrpo.runs.compose import compose

ALGORITHMS = sorted(path.stem for path in (resources.files("verl_trgrpo") / "config/algorithm").iterdir())
# Groups of four: all right, one right, three right, all wrong.
REWARDS = [1.0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0]
# Two names for one thing.
SAME = {"grpo_sg": "tr_grpo"}


def advantages_of(name):
    """What veRL's trainer computes of the rewards, one number for each response."""
    from verl.protocol import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    algorithm = compose("kk_quickstart", [f"algorithm={name}"]).config.algorithm
    rewards = torch.tensor(REWARDS)[:, None]
    groups = np.array([row // 4 for row in range(ROWS)], dtype=object)
    data = DataProto.from_dict({"token_level_rewards": rewards, "response_mask": torch.ones(ROWS, 1)}, {"uid": groups})
    compute_advantage(
        data,
        adv_estimator=algorithm.adv_estimator,
        norm_adv_by_std_in_grpo=algorithm.norm_adv_by_std_in_grpo,
        config=algorithm,
    )
    return tuple(data.batch["advantages"][:, 0].tolist())


@pytest.fixture(scope="module")
def updates():
    cases = [Case((f"algorithm={name}",), ROWS // 2, advantages=advantages_of(name)) for name in ALGORITHMS]
    return dict(zip(ALGORITHMS, run_ranks(make_batch(), cases, 1), strict=True))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_word_changes_the_update_as_it_says(updates, name):
    update = updates[name]
    assert math.isfinite(update.metrics["loss"]) and 0 < update.metrics["grad_norm"] < math.inf
    distance = float((update.gradient - updates["grpo"].gradient).norm() / updates["grpo"].gradient.norm())
    assert distance == 0 if name == "grpo" else distance > 1e-3
    twin = SAME.get(name, name)
    assert float((update.gradient - updates[twin].gradient).norm()) == 0
