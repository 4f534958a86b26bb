"""Extend this project's replay buffer: hand the parts of rewards to the estimators that read them.

For ``trainer.v1.sampler.custom_sampler``. ``uid``, the field with the label of a response's group, gets the key of the response
in its place, by which the estimator finds its group and its parts. Nothing else of veRL's trainer reads that field of training
rows after they are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tensordict import NonTensorStack
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from more_methods.multi_reward.advantages import ConstraintOptions
from more_methods.multi_reward.estimators import PartsEstimator, constraint_metrics
from verl_trgrpo.verl_plugin import group_metrics_buffer
from verl_trgrpo.verl_plugin.advantage_estimator import find_estimator, without_target
from verl_trgrpo.verl_plugin.group_metrics_buffer import GroupMetrics, Rewards
from verl_trgrpo.verl_plugin.replay_data import put_column


def reward_parts_buffer(**arguments: Any) -> Any:
    """Build the buffer of veRL's trainer mode, with metrics of groups and rewards, and parts for the estimator.

    Args:
        **arguments: of ``group_metrics_buffer.replay_buffer``. Of ``sampler_kwargs``, ``adv_estimator`` and ``constrained_grpo``
            are the values of veRL's ``algorithm.adv_estimator`` and ``algorithm.constrained_grpo``; with another estimator than
            those that read parts the buffer is that of ``group_metrics_buffer``.
    """
    return group_metrics_buffer.replay_buffer(SyncPartsBuffer, AsyncPartsBuffer, **arguments)


class RewardParts(GroupMetrics):
    """Hand the parts of the rewards of a drawn batch to the run's estimator."""

    def add_column_and_metrics(self, batch: Any, rewards: Rewards | None) -> dict[str, Any]:
        estimator = find_estimator(self.sampler_kwargs.get("adv_estimator"))
        if not isinstance(estimator, PartsEstimator):
            return super().add_column_and_metrics(batch, rewards)
        if rewards is None:
            raise ValueError(
                f"adv_estimator={self.sampler_kwargs['adv_estimator']} {group_metrics_buffer.NEEDS_REWARDS}"
            )
        parts = [_numbers(info, tag) for info, tag in zip(rewards.infos, batch.tags, strict=True)]
        estimator.parts = dict(zip(batch.keys, parts, strict=True))
        put_column(batch, "uid", NonTensorStack(*batch.keys))
        metrics = super().add_column_and_metrics(batch, rewards)
        if constraints := self.sampler_kwargs.get("constrained_grpo"):
            options = ConstraintOptions(**without_target(constraints))
            metrics |= constraint_metrics(options, parts, estimator.state)
        return metrics


class SyncPartsBuffer(RewardParts, ReplayBuffer):
    """Buffer of ``trainer_mode=sync``."""


class AsyncPartsBuffer(RewardParts, ReplayBufferAsync):
    """Buffer of the other trainer modes."""


def _numbers(info: Mapping[str, Any], tag: Mapping[str, Any]) -> dict[str, float]:
    """Return the parts of a reward that are numbers, and ``response_length``, the number of tokens."""
    numbers = {
        name: float(value) for name, value in info.items() if isinstance(value, (bool, int, float, np.number, np.bool_))
    }
    return {"response_length": float(tag["response_len"]), **numbers}
