"""Provide veRL's replay buffer with metrics of groups and a poll interval that can be configured.

For ``trainer.v1.sampler.custom_sampler``, the extension point of veRL's v1 trainer: the metrics that ``sample`` returns beside
the batch are logged with the step. veRL leaves group filtering (``algorithm.filter_groups``) to custom classes, and this one
does not filter.
"""

from __future__ import annotations

from typing import Any

import transfer_queue
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from verl_trgrpo.core import group_metrics


def replay_buffer(**arguments: Any) -> ReplayBuffer:
    """Build the buffer of veRL's trainer mode, with metrics of groups.

    Args:
        **arguments: of veRL's ``ReplayBuffer``. ``sampler_kwargs.poll_interval`` is the time in seconds between two polls
            for finished rollouts, which veRL does not let one configure; its own is 2.
    """
    interval = (arguments.get("sampler_kwargs") or {}).get("poll_interval")
    chosen = {} if interval is None else {"poll_interval": interval}
    kind = _Buffer if arguments["trainer_mode"] == "sync" else _AsyncBuffer
    return kind(**arguments, **chosen)


class _Buffer(ReplayBuffer):
    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        return _with_metrics(partition_id, *super().sample(global_steps, partition_id, batch_size))


class _AsyncBuffer(ReplayBufferAsync):
    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        return _with_metrics(partition_id, *super().sample(global_steps, partition_id, batch_size))


def _with_metrics(partition_id: str, batch: Any, metrics: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    if partition_id == "val" or not batch.keys:
        return batch, metrics
    fields = ["rm_scores", "extra_fields"]
    data = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    if "rm_scores" not in data:  # a reward model that shares the GPUs scores later
        return batch, metrics
    groups = [key.rsplit("_", 2)[0] for key in batch.keys]  # keys are UID_SESSION_INDEX
    rewards = [float(scores.sum()) for scores in list(data["rm_scores"])]
    # Plain dictionaries, or dictionaries in a wrapper of tensordict.
    extras = [getattr(value, "data", value) for value in data["extra_fields"]] if "extra_fields" in data else []
    infos = [extra.get("reward_extra_info") or {} for extra in extras if isinstance(extra, dict)]
    return batch, metrics | group_metrics(groups, rewards, infos)
