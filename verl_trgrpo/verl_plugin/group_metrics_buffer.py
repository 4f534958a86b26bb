"""Provide veRL's replay buffer with metrics of groups and rewards, and with a poll interval that can be configured.

For ``trainer.v1.sampler.custom_sampler``, the extension point of veRL's v1 trainer: the metrics that ``sample`` returns beside
the batch are logged with the step. veRL hands the settings of dynamic sampling (``algorithm.filter_groups``) and of the refill of
failed groups to its own buffer only; ``run_defaults.yaml`` puts them into ``sampler_kwargs``, from where they are passed on, so
both work as in veRL.

With ``sampler_kwargs.success_rate`` a batch gets the column of that name, which reaches the workers with all others; the
configuration sets it if the shaping asks for this input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
import transfer_queue
from tensordict import TensorDict
from verl.trainer.ppo.v1.replay_buffer import FILTER_GROUPS_REWARD_METRIC, ReplayBuffer, ReplayBufferAsync

from verl_trgrpo.core import group_metrics


def replay_buffer(**arguments: Any) -> ReplayBuffer:
    """Build the buffer of veRL's trainer mode, with metrics of groups and rewards.

    Args:
        **arguments: of veRL's ``ReplayBuffer``. Of ``sampler_kwargs``, ``poll_interval`` is the time in seconds between two polls
            for finished rollouts, which veRL does not let one configure (its own is 2); ``filter_groups``,
            ``sync_refill_failed_groups`` and ``batch_size`` are the values of veRL's ``algorithm.filter_groups``,
            ``trainer.v1.sampler.sync_refill_failed_groups`` and ``data.train_batch_size``. ``success_rate`` adds the column
            to training batches; ``correct_from`` (1.0) is the reward from which on a response is right.
    """
    given = arguments.get("sampler_kwargs") or {}
    sync = arguments["trainer_mode"] == "sync"
    if (interval := given.get("poll_interval")) is not None:
        arguments["poll_interval"] = interval
    filter_groups = given.get("filter_groups") or {}
    if filter_groups.get("enable"):
        arguments["filter_groups_metric"] = filter_groups.get("metric") or FILTER_GROUPS_REWARD_METRIC
        if sync:
            arguments["max_inflight_gen_batches"] = filter_groups.get("max_inflight_gen_batches", 1)
    if given.get("sync_refill_failed_groups"):
        arguments["sync_refill_failed_groups"] = True
    if sync and ("filter_groups_metric" in arguments or "sync_refill_failed_groups" in arguments):
        # As veRL's trainer sets them, which then fetches single prompts.
        arguments |= {"train_batch_size": given["batch_size"], "gen_batch_size": 1}
    buffer = (_Buffer if sync else _AsyncBuffer)(**arguments)
    if given.get("success_rate"):
        buffer.correct_from = given.get("correct_from", 1.0)
    return buffer


class _Buffer(ReplayBuffer):
    correct_from: float | None = None

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        return _with_metrics(partition_id, batch, metrics, self.correct_from)


class _AsyncBuffer(ReplayBufferAsync):
    correct_from: float | None = None

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        return _with_metrics(partition_id, batch, metrics, self.correct_from)


def _with_metrics(
    partition_id: str, batch: Any, metrics: dict[str, Any], correct_from: float | None
) -> tuple[Any, dict[str, Any]]:
    """Add metrics of groups, and the column ``success_rate`` unless ``correct_from`` is None.

    Raises:
        ValueError: the column is asked for, and rewards are not known yet.
    """
    if partition_id == "val" or not batch.keys:
        return batch, metrics
    fields = ["rm_scores", "extra_fields"]
    data = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    if "rm_scores" not in data:  # a reward model that shares the GPUs scores later
        if correct_from is not None:
            raise ValueError(
                "the shaping takes success_rate, but rewards are computed after the batch is drawn; give the reward model "
                "its own GPUs with reward.reward_model.enable_resource_pool=true"
            )
        return batch, metrics
    groups = [key.rsplit("_", 2)[0] for key in batch.keys]  # keys are UID_SESSION_INDEX
    rewards = [float(scores.sum()) for scores in list(data["rm_scores"])]
    if correct_from is not None:
        fields = TensorDict({"success_rate": success_rates(groups, rewards, correct_from)[:, None]}, len(rewards))
        transfer_queue.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)
    # Plain dictionaries, or dictionaries in a wrapper of tensordict.
    extras = [getattr(value, "data", value) for value in data["extra_fields"]] if "extra_fields" in data else []
    infos = [extra.get("reward_extra_info") or {} for extra in extras if isinstance(extra, dict)]
    return batch, metrics | group_metrics(groups, rewards, infos)


def success_rates(groups: Sequence[str], rewards: Sequence[float], correct_from: float) -> torch.Tensor:
    """Return the share of right responses in the group of each response, (batch,).

    Args:
        groups: (batch,) label of the group of each response.
        rewards: (batch,) reward of each response.
        correct_from: a response is right when its reward is at least this.
    """
    right = defaultdict(list)
    for group, reward in zip(groups, rewards, strict=True):
        right[group].append(reward >= correct_from)
    return torch.tensor([sum(right[group]) / len(right[group]) for group in groups])
