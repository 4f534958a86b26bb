"""Register the estimators ``tr_gdpo`` and ``constrained_grpo`` with veRL, and define their options in its ``algorithm`` node.

``tr_gdpo`` has veRL's options ``algorithm.gdpo_reward_keys`` and ``gdpo_reward_weights``, ``constrained_grpo`` those at
``algorithm.constrained_grpo``. veRL's v1 trainer hands an estimator the score of a response and its label (``uid``), and not the
parts of its reward. So ``replay_buffer`` labels each response by its own key, which begins with the key of its group, and gives
the parts to the estimator, which is in the same process.

Importing this module registers both: veRL's trainer imports it with the replay buffer, and the class of the ``algorithm`` node is
here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import register_adv_est

from more_methods.multi_reward.advantages import (
    ConstraintOptions,
    RewardWeights,
    constrained_advantages,
    decoupled_advantages,
    part_values,
)
from more_methods.multi_reward.checks import findings_of_run
from verl_trgrpo.common.findings import Finding
from verl_trgrpo.verl_plugin.advantage_estimator import Batch, Estimator, group_of


@dataclass
class MultiRewardAlgoConfig(AlgoConfig):
    """Extend veRL's ``algorithm`` node by the options of Constrained GRPO.

    The configuration's ``_target_`` names it, so that wrong values are found when a configuration is validated; the
    estimators read the node itself.

    Args:
        constrained_grpo: options of ``adv_estimator: constrained_grpo``.

    Raises:
        ValueError: veRL's own ``gdpo_reward_keys`` and ``gdpo_reward_weights`` do not fit ``adv_estimator: tr_gdpo``.
    """

    constrained_grpo: ConstraintOptions | None = None

    def __post_init__(self) -> None:
        if self.adv_estimator == "tr_gdpo":
            RewardWeights(self.gdpo_reward_keys or (), self.gdpo_reward_weights or ())

    @staticmethod
    def run_checks(view: Any) -> list[Finding]:
        """Check what the estimators need of a run; see ``checks.findings_of_run``."""
        return findings_of_run(view)


class Parts(NamedTuple):
    """Hold the parts of the rewards of a batch.

    Args:
        of_responses: the parts of each response, in the order of the batch.
        present: which rows of the batch are responses, (batch,) bool. A response without tokens is one, too: a rollout
            correction may reject all of them. Rows with which veRL fills a batch up have neither tokens nor parts.
    """

    of_responses: list[Mapping[str, float]]
    present: torch.Tensor

    def in_rows(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values (responses, n) in the rows of their responses, and 0 in the others: (batch, n)."""
        rows = values.new_zeros(len(self.present), values.shape[1])
        rows[self.present] = values
        return rows


class PartsEstimator(Estimator):
    """Compute advantages from the parts of rewards.

    Args:
        compute: returns the advantages of a batch.
        remembers: `compute` changes the state, whose values JSON can hold.
    """

    def __init__(
        self, compute: Callable[[Batch, Parts, dict[str, Any]], torch.Tensor], remembers: bool = False
    ) -> None:
        super().__init__(lambda batch, state: compute(*self._with_parts(batch), state), remembers)
        self.parts: Mapping[str, Mapping[str, float]] = {}
        """Parts of the rewards of the batch that was drawn last, by the key of the response."""

    def _with_parts(self, batch: Batch) -> tuple[Batch, Parts]:
        """Return the batch with labels of groups, and the parts of its rewards.

        Raises:
            ValueError: a row with tokens has a label that the replay buffer has not given.
        """
        keys = batch.groups.tolist()
        present = torch.tensor([key in self.parts for key in keys], device=batch.mask.device)
        if bool((batch.mask.bool().any(dim=-1) & ~present).any()):
            raise ValueError(
                f"adv_estimator={batch.config.get('adv_estimator')}: the parts of the reward are missing; the replay buffer of "
                "algorithm=gdpo and algorithm=constrained_grpo hands them on, see trainer.v1.sampler in their files"
            )
        groups = np.array([group_of(key) for key in keys], dtype=object)
        parts = [self.parts[key] for key in keys if key in self.parts]
        return dataclasses.replace(batch, groups=groups), Parts(parts, present)


def _tr_gdpo(batch: Batch, parts: Parts, _: dict[str, Any]) -> torch.Tensor:
    options = RewardWeights(batch.config.get("gdpo_reward_keys") or (), batch.config.get("gdpo_reward_weights") or ())
    rewards = parts.in_rows(part_values(parts.of_responses, options.names, batch.mask.device))
    return decoupled_advantages(
        rewards, batch.mask, batch.groups, options.weights, batch.epsilon, normalize_by_std=batch.normalizes_by_std
    )


def _constrained_grpo(batch: Batch, parts: Parts, state: dict[str, Any]) -> torch.Tensor:
    options = ConstraintOptions(**batch.options("constrained_grpo"))
    costs = parts.in_rows(options.values(parts.of_responses, batch.mask.device))
    multipliers = options.remembered(state)
    if parts.of_responses:
        means = costs[parts.present].mean(dim=0).tolist()
        multipliers = options.ascended(state, means, options.damping)
        state["multipliers"] = options.ascended(state, means, options.lr)
    return constrained_advantages(
        batch.rewards,
        costs,
        batch.mask,
        batch.groups,
        list(multipliers.values()),
        options.reward_weight,
        batch.epsilon,
        batch.normalizes_by_std,
    )


def constraint_metrics(
    options: ConstraintOptions, parts: Sequence[Mapping[str, float]], state: Mapping[str, Any]
) -> dict[str, float]:
    """Return the mean of each cost in a batch, and the multiplier that it has in this batch's advantages."""
    metrics: dict[str, float] = {}
    means = options.values(parts).mean(dim=0).tolist()
    for (name, multiplier), mean in zip(options.ascended(state, means, options.damping).items(), means, strict=True):
        metrics |= {f"critic/cost/{name}/mean": mean, f"critic/cost/{name}/multiplier": multiplier}
    return metrics


register_adv_est("tr_gdpo")(PartsEstimator(_tr_gdpo))
register_adv_est("constrained_grpo")(PartsEstimator(_constrained_grpo, remembers=True))
