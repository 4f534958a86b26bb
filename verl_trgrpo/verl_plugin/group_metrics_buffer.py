"""Provide veRL's replay buffer with metrics of groups and rewards.

For ``trainer.v1.sampler.custom_sampler``, the extension point of veRL's v1 trainer: the metrics that ``sample`` returns beside
the batch are logged with the step. veRL hands the settings of dynamic sampling (``algorithm.filter_groups``) and of the refill of
failed groups to its own buffer only; ``run_defaults.yaml`` puts them into ``sampler_kwargs``, from where they are passed on, so
both work as in veRL.

With ``sampler_kwargs.success_rate`` a batch gets the column of that name, which reaches the workers with all others; the
configuration sets it if the shaping asks for this input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig
from verl.trainer.ppo.v1.replay_buffer import FILTER_GROUPS_REWARD_METRIC, ReplayBuffer, ReplayBufferAsync

from verl_trgrpo.core import group_metrics
from verl_trgrpo.core.advantages import group_numbers, success_rates
from verl_trgrpo.verl_plugin.advantage_estimator import group_of
from verl_trgrpo.verl_plugin.replay_data import fetch, put_column

NEEDS_REWARDS = (
    "needs rewards before the batch is drawn; use a reward function, or give the reward model its own GPUs with "
    "reward.reward_model.enable_resource_pool=true"
)


class Rewards(NamedTuple):
    """Hold the rewards of a drawn batch. A session may have several outputs, to each of which veRL writes its reward.

    Args:
        keys: of each output, GROUP_SESSION_INDEX.
        scores: reward of each output.
        infos: what the reward function returned beside the scores; empty where the agent loop hands nothing on.
    """

    keys: list[str]
    scores: list[float]
    infos: list[Mapping[str, Any]]

    def success_rates(self, correct_from: float) -> torch.Tensor:
        """Return the share of sessions with a reward of at least `correct_from` in the group of each output, (batch,)."""
        counted = torch.zeros(len(self.keys), dtype=torch.bool)
        counted[self._sessions()] = True
        groups = group_numbers([group_of(key) for key in self.keys])
        return success_rates(torch.tensor(self.scores), groups, correct_from, counted).float()

    def metrics(self) -> dict[str, float]:
        """Return ``group_metrics`` of the sessions."""
        rows = self._sessions()
        groups, scores = [group_of(self.keys[row]) for row in rows], [self.scores[row] for row in rows]
        return group_metrics(groups, scores, [self.infos[row] for row in rows] if self.infos else [])

    def _sessions(self) -> list[int]:
        """Return one row of each session."""
        return list({key.rpartition("_")[0]: row for row, key in enumerate(self.keys)}.values())


class GroupMetrics:
    """Add metrics, and the column ``success_rate`` if it is asked for, to what the replay buffer beside it returns."""

    sampler_kwargs: DictConfig

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        batch, metrics = super().sample(global_steps, partition_id, batch_size)  # type: ignore[misc]
        if batch.partition_id == "val" or not batch.keys:
            return batch, metrics
        return batch, metrics | self.add_column_and_metrics(batch, rewards_of(batch))

    def add_column_and_metrics(self, batch: Any, rewards: Rewards | None) -> dict[str, Any]:
        """Put the column that the shaping asks for into a training batch, and return the metrics of its rewards.

        Args:
            batch: veRL's ``KVBatchMeta``.
            rewards: of the batch; None where they are not known yet.

        Raises:
            ValueError: the shaping takes rewards, which are not known yet.
        """
        asked = self.sampler_kwargs.get("success_rate")
        if rewards is None:
            if asked:
                raise ValueError(f"the shaping, which takes success_rate, {NEEDS_REWARDS}")
            return {}
        if asked:
            right = self.sampler_kwargs.get("correct_from", 1.0)
            put_column(batch, "success_rate", rewards.success_rates(right)[:, None])
        return rewards.metrics()


class SyncBuffer(GroupMetrics, ReplayBuffer):
    """Buffer of ``trainer_mode=sync``."""


class AsyncBuffer(GroupMetrics, ReplayBufferAsync):
    """Buffer of the other trainer modes."""


def replay_buffer(
    sync: type[GroupMetrics] = SyncBuffer, other: type[GroupMetrics] = AsyncBuffer, **arguments: Any
) -> Any:
    """Build the buffer of veRL's trainer mode, with metrics of groups and rewards.

    Args:
        sync: class for ``trainer_mode=sync``.
        other: class for the other modes.
        **arguments: of veRL's ``ReplayBuffer``. Of ``sampler_kwargs``, ``poll_interval`` is the time in seconds between two polls
            for finished rollouts, which veRL does not let one configure (its own is 2); ``filter_groups``,
            ``sync_refill_failed_groups`` and ``batch_size`` are the values of veRL's ``algorithm.filter_groups``,
            ``trainer.v1.sampler.sync_refill_failed_groups`` and ``data.train_batch_size``. ``success_rate`` adds the column to
            training batches; ``correct_from`` (1.0) is the reward from which on a response is right.
    """
    given = arguments.get("sampler_kwargs") or {}
    buffer = sync if arguments["trainer_mode"] == "sync" else other
    if (interval := given.get("poll_interval")) is not None:
        arguments["poll_interval"] = interval
    filter_groups = given.get("filter_groups") or {}
    if filter_groups.get("enable"):
        arguments["filter_groups_metric"] = filter_groups.get("metric") or FILTER_GROUPS_REWARD_METRIC
        if buffer is sync:
            arguments["max_inflight_gen_batches"] = filter_groups.get("max_inflight_gen_batches", 1)
    if given.get("sync_refill_failed_groups"):
        arguments["sync_refill_failed_groups"] = True
    if buffer is sync and ("filter_groups_metric" in arguments or "sync_refill_failed_groups" in arguments):
        # As veRL's trainer sets them, which then fetches single prompts.
        arguments |= {"train_batch_size": given["batch_size"], "gen_batch_size": 1}
    return buffer(**arguments)


def rewards_of(batch: Any) -> Rewards | None:
    """Return the rewards of a batch of the queue; None where a reward model that shares the GPUs scores it later.

    What a reward returned beside the score is a part of the extra fields of a response, which the queue holds as one value and
    hands out whole: with the prompt and the model's text some kilobytes each, as veRL's own filter of groups fetches them.
    """
    data = fetch(batch, ["rm_scores", "extra_fields"])
    if "rm_scores" not in data:
        return None
    # Plain dictionaries, or dictionaries in a wrapper of tensordict.
    extras = [getattr(value, "data", value) for value in data["extra_fields"]] if "extra_fields" in data else []
    return Rewards(
        keys=list(batch.keys),
        scores=[float(scores.sum()) for scores in list(data["rm_scores"])],
        infos=[(extra.get("reward_extra_info") or {}) if isinstance(extra, dict) else {} for extra in extras],
    )
