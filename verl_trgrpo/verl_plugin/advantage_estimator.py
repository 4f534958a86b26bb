"""Register the advantage estimators of the core with veRL.

``tr_grpo`` is GRPO's, vectorised and exact for equal rewards; ``reinforce_rej`` drops groups of equal rewards; ``raft`` drops
rewards of 0 and below; ``maxrl`` divides by the mean reward;
``ha_dw`` weights advantages by difficulty, with options from ``algorithm.ha_dw``; ``w_reinforce`` uses right and wrong only,
with options from ``algorithm.w_reinforce``.

All take ``token_level_rewards`` and ``response_mask``, both (batch, response_length), ``index`` (batch,) with group labels
(veRL's uid), ``epsilon``, which is added to the standard deviation, and ``config``, veRL's ``algorithm`` node. They return
advantages and returns, one and the same tensor (batch, response_length), and refuse a batch with a reward that is not finite:
of veRL's losses some would skip the update silently.

The configurations keep ``adv_estimator: grpo`` as the default, because veRL 0.9 routes only that name through the path
that handles several trajectories per session. Choose ``algorithm.adv_estimator=tr_grpo`` for single-turn runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, register_adv_est

from verl_trgrpo.core import (
    DifficultyOptions,
    OutcomeOptions,
    difficulty_weighted_advantages,
    group_relative_advantages,
    mean_relative_advantages,
    outcome_advantages,
    positive_advantages,
    rejection_advantages,
)


@dataclass(frozen=True)
class Batch:
    """Hold what veRL hands to an estimator; see the module."""

    rewards: torch.Tensor
    mask: torch.Tensor
    groups: np.ndarray
    epsilon: float
    config: Any

    @property
    def normalizes_by_std(self) -> bool:
        return True if self.config is None else self.config.get("norm_adv_by_std_in_grpo", True)

    def options(self, name: str) -> dict[str, Any]:
        """Return the options of an estimator in veRL's ``algorithm`` node, unchecked."""
        return without_target((self.config.get(name) if self.config is not None else None) or {})


def group_of(key: str) -> str:
    """Return the label of the group of a response, whose key in veRL's queue is GROUP_SESSION_INDEX."""
    return key.rsplit("_", 2)[0]


def without_target(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section of the configuration without the class that veRL builds from it."""
    return {key: value for key, value in options.items() if key != "_target_"}


class Estimator:
    """Compute advantages under the signature that veRL calls, and keep what has to be known of the batches before.

    veRL calls it once per batch, in the trainer's process. ``estimator_state`` saves `state` with each checkpoint.

    Args:
        compute: returns the advantages of a batch.
        remembers: `compute` changes the state, whose values JSON can hold.
    """

    def __init__(
        self,
        compute: Callable[[Batch, dict[str, Any]], torch.Tensor],
        remembers: bool = False,
    ) -> None:
        self.remembers = remembers
        self.state: dict[str, Any] = {}
        self._compute = compute

    def __call__(
        self,
        token_level_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        index: np.ndarray,
        epsilon: float = 1e-6,
        config: Any = None,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        _check_finite(token_level_rewards)
        batch = Batch(token_level_rewards, response_mask, index, epsilon, config)
        advantages = self._compute(batch, self.state)
        return advantages, advantages


def _check_finite(rewards: torch.Tensor) -> None:
    """Raise a ValueError if the reward of a response is not finite; `rewards` (batch, response_length) are on the host."""
    broken = (~torch.isfinite(rewards.sum(dim=-1))).nonzero()[:, 0].tolist()
    if broken:
        raise ValueError(
            f"{len(broken)} of {len(rewards)} rewards of a batch are not finite (response {broken[0]}: "
            f"{rewards[broken[0]].sum().item()}); correct the reward function, which has to return a finite score for every "
            "response"
        )


def find_estimator(name: str | None) -> Estimator | None:
    """Return the estimator of this project with a name; None for another one's, or for no name.

    Raises:
        ValueError: no estimator has this name.
    """
    found = get_adv_estimator_fn(name) if name else None
    return found if isinstance(found, Estimator) else None


def _tr_grpo(batch: Batch, _: dict[str, Any]) -> torch.Tensor:
    return group_relative_advantages(
        batch.rewards, batch.mask, batch.groups, batch.epsilon, normalize_by_std=batch.normalizes_by_std
    )


def _reinforce_rej(batch: Batch, _: dict[str, Any]) -> torch.Tensor:
    return rejection_advantages(batch.rewards, batch.mask, batch.groups)


def _raft(batch: Batch, _: dict[str, Any]) -> torch.Tensor:
    return positive_advantages(batch.rewards, batch.mask, batch.groups)


def _maxrl(batch: Batch, _: dict[str, Any]) -> torch.Tensor:
    return mean_relative_advantages(batch.rewards, batch.mask, batch.groups)


def _w_reinforce(batch: Batch, _: dict[str, Any]) -> torch.Tensor:
    options = OutcomeOptions(**batch.options("w_reinforce"))
    return outcome_advantages(batch.rewards, batch.mask, batch.groups, options)


def _ha_dw(batch: Batch, state: dict[str, Any]) -> torch.Tensor:
    options = DifficultyOptions(**batch.options("ha_dw"))
    advantages, state["history"] = difficulty_weighted_advantages(
        batch.rewards,
        batch.mask,
        batch.groups,
        options,
        state.get("history", ()),
        batch.epsilon,
        batch.normalizes_by_std,
    )
    return advantages


register_adv_est("tr_grpo")(Estimator(_tr_grpo))
register_adv_est("reinforce_rej")(Estimator(_reinforce_rej))
register_adv_est("raft")(Estimator(_raft))
register_adv_est("maxrl")(Estimator(_maxrl))
register_adv_est("w_reinforce")(Estimator(_w_reinforce))
register_adv_est("ha_dw")(Estimator(_ha_dw, remembers=True))
