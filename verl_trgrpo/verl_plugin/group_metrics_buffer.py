"""Provide veRL's replay buffer with metrics of groups and rewards, and hand the parts of rewards to estimators that read them.

For ``trainer.v1.sampler.custom_sampler``, the extension point of veRL's v1 trainer: the metrics that ``sample`` returns beside
the batch are logged with the step. veRL hands the settings of dynamic sampling (``algorithm.filter_groups``) and of the refill of
failed groups to its own buffer only; ``run_defaults.yaml`` puts them into ``sampler_kwargs``, from where they are passed on, so
both work as in veRL.

With ``sampler_kwargs.success_rate`` a batch gets the column of that name, which reaches the workers with all others; the
configuration sets it if the shaping asks for this input.

veRL's v1 trainer hands an advantage estimator the score and the label of the group of each response, and not the parts of its
reward. For an estimator that reads them, ``uid``, the field with that label, gets the group and the parts, after the keys of the
batch have been read. Nothing else of the trainer reads that field of training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transfer_queue
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo.v1.replay_buffer import FILTER_GROUPS_REWARD_METRIC, ReplayBuffer, ReplayBufferAsync

from verl_trgrpo.core import ConstraintOptions, group_metrics
from verl_trgrpo.core.advantages import group_numbers, success_rates
from verl_trgrpo.verl_plugin.advantage_estimator import constraint_metrics, find_estimator, label_with, without_target


def replay_buffer(**arguments: Any) -> ReplayBuffer:
    """Build the buffer of veRL's trainer mode, with metrics of groups and rewards.

    Args:
        **arguments: of veRL's ``ReplayBuffer``. Of ``sampler_kwargs``, ``poll_interval`` is the time in seconds between two polls
            for finished rollouts, which veRL does not let one configure (its own is 2); ``filter_groups``,
            ``sync_refill_failed_groups``, ``batch_size``, ``adv_estimator`` and ``constrained_grpo`` are the values of veRL's
            ``algorithm.filter_groups``, ``trainer.v1.sampler.sync_refill_failed_groups``, ``data.train_batch_size``,
            ``algorithm.adv_estimator`` and ``algorithm.constrained_grpo``. ``success_rate`` adds the column to training batches;
            ``correct_from`` (1.0) is the reward from which on a response is right.
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
    return (_Buffer if sync else _AsyncBuffer)(**arguments)


class _Buffer(ReplayBuffer):
    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        return _with_metrics(self.sampler_kwargs, *super().sample(global_steps, partition_id, batch_size))


class _AsyncBuffer(ReplayBufferAsync):
    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        return _with_metrics(self.sampler_kwargs, *super().sample(global_steps, partition_id, batch_size))


def _with_metrics(options: Mapping[str, Any], batch: Any, metrics: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Add metrics of groups, and what the shaping or the estimator of the run reads of them to the fields of the batch.

    Raises:
        ValueError: these need rewards, which are not known yet.
    """
    if batch.partition_id == "val" or not batch.keys:
        return batch, metrics
    name = options.get("adv_estimator")
    estimator = find_estimator(name)
    state = estimator.state if estimator and estimator.reads_parts else None
    fields = ["rm_scores", "extra_fields"]
    data = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    if "rm_scores" not in data:  # a reward model that shares the GPUs scores later
        if options.get("success_rate") or state is not None:
            reader = f"adv_estimator={name}" if state is not None else "the shaping, which takes success_rate,"
            raise ValueError(
                f"{reader} needs rewards before the batch is drawn; use a reward function, or give the reward model its own GPUs "
                "with reward.reward_model.enable_resource_pool=true"
            )
        return batch, metrics
    groups = [key.rsplit("_", 2)[0] for key in batch.keys]  # keys are UID_SESSION_INDEX
    rewards = [float(scores.sum()) for scores in list(data["rm_scores"])]
    if options.get("success_rate"):
        rates = success_rates(torch.tensor(rewards), group_numbers(groups), options.get("correct_from", 1.0))
        _put(batch, "success_rate", rates.float()[:, None])
    # Plain dictionaries, or dictionaries in a wrapper of tensordict.
    extras = [getattr(value, "data", value) for value in data["extra_fields"]] if "extra_fields" in data else []
    infos = [extra.get("reward_extra_info") or {} for extra in extras if isinstance(extra, dict)]
    metrics = metrics | group_metrics(groups, rewards, infos)
    if state is not None:
        parts = [_numbers(info, tag) for info, tag in zip(infos, batch.tags, strict=True)]
        _put(batch, "uid", NonTensorStack(*map(label_with, groups, parts)))
        if constraints := options.get("constrained_grpo"):
            metrics |= constraint_metrics(ConstraintOptions(**without_target(constraints)), parts, state)
    return batch, metrics


def _put(batch: Any, field: str, column: torch.Tensor | NonTensorStack) -> None:
    fields = TensorDict({field: column}, batch_size=len(batch.keys))
    transfer_queue.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)


def _numbers(info: Mapping[str, Any], tag: Mapping[str, Any]) -> dict[str, float]:
    """Return the parts of a reward that are numbers, and ``response_length``, the number of tokens."""
    numbers = {
        name: float(value) for name, value in info.items() if isinstance(value, (bool, int, float, np.number, np.bool_))
    }
    return {"response_length": float(tag["response_len"]), **numbers}
