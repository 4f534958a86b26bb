"""The advantage estimators as veRL calls them.

``tr_grpo`` is GRPO's, vectorised and exact for equal rewards; ``reinforce_rej`` drops groups of equal rewards;
``ha_dw`` weighs advantages by difficulty, with options from ``algorithm.ha_dw``; ``w_reinforce`` knows right and wrong
alone, with options from ``algorithm.w_reinforce``.

All take ``token_level_rewards`` and ``response_mask``, both (batch, response_length), ``index`` (batch,) with group labels
(veRL's uid), ``epsilon``, which is added to the standard deviation, and ``config``, veRL's ``algorithm`` node. They return
advantages and returns, one and the same tensor (batch, response_length).

The configurations keep ``adv_estimator: grpo`` as the default, because veRL 0.9 routes only that name through the path
that handles several trajectories per session. Choose ``algorithm.adv_estimator=tr_grpo`` for single-turn runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import register_adv_est

from verl_trgrpo.core import (
    DifficultyOptions,
    OutcomeOptions,
    difficulty_weighted_advantages,
    group_relative_advantages,
    outcome_advantages,
    rejection_advantages,
)


@register_adv_est("tr_grpo")
def compute_tr_grpo_outcome_advantage(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    epsilon: float = 1e-6,
    config: Any = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Group-relative advantages; see :func:`verl_trgrpo.core.group_relative_advantages`."""
    advantages = group_relative_advantages(
        token_level_rewards, response_mask, index, epsilon, normalize_by_std=_normalizes_by_std(config)
    )
    return advantages, advantages


@register_adv_est("reinforce_rej")
def compute_reinforce_rej_outcome_advantage(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Reinforce-Rej; see :func:`verl_trgrpo.core.rejection_advantages`."""
    advantages = rejection_advantages(token_level_rewards, response_mask, index)
    return advantages, advantages


@register_adv_est("w_reinforce")
def compute_w_reinforce_outcome_advantage(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Any = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """W-REINFORCE; see :func:`verl_trgrpo.core.outcome_advantages`; ValueError for options that are out of range."""
    options = OutcomeOptions(**_options(config, "w_reinforce"))
    advantages = outcome_advantages(token_level_rewards, response_mask, index, options)
    return advantages, advantages


class HistoryAwareEstimator:
    """HA-DW as veRL calls it, once per batch in the trainer's process: remembers the policy's accuracy between calls.

    A new ``config`` object means a new run and starts a new history. veRL saves nothing of an estimator, so a resumed run
    starts a new history as well, with the accuracy of its first batch.
    """

    def __init__(self) -> None:
        self._run: Any = None
        self._expected: float | None = None

    def __call__(
        self,
        token_level_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        index: np.ndarray,
        epsilon: float = 1e-6,
        config: Any = None,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :func:`verl_trgrpo.core.difficulty_weighted_advantages`; ValueError for options that are out of range."""
        if config is not self._run:
            self._run, self._expected = config, None
        options = DifficultyOptions(**_options(config, "ha_dw"))
        advantages, self._expected = difficulty_weighted_advantages(
            token_level_rewards, response_mask, index, options, self._expected, epsilon, _normalizes_by_std(config)
        )
        return advantages, advantages


register_adv_est("ha_dw")(HistoryAwareEstimator())


def _options(config: Any, name: str) -> dict[str, Any]:
    """The options of an estimator in veRL's ``algorithm`` node."""
    given = (config.get(name) if config is not None else None) or {}
    return {key: value for key, value in given.items() if key != "_target_"}


def _normalizes_by_std(config: Any) -> bool:
    return True if config is None else config.get("norm_adv_by_std_in_grpo", True)
