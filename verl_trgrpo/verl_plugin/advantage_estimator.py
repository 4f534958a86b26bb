"""Register the advantage estimators of the core with veRL.

``tr_grpo`` is GRPO's, vectorised and exact for equal rewards; ``reinforce_rej`` drops groups of equal rewards;
``ha_dw`` weights advantages by difficulty, with options from ``algorithm.ha_dw``; ``w_reinforce`` uses right and wrong only,
with options from ``algorithm.w_reinforce``.

All take ``token_level_rewards`` and ``response_mask``, both (batch, response_length), ``index`` (batch,) with group labels
(veRL's uid), ``epsilon``, which is added to the standard deviation, and ``config``, veRL's ``algorithm`` node. They return
advantages and returns, one and the same tensor (batch, response_length).

The configurations keep ``adv_estimator: grpo`` as the default, because veRL 0.9 routes only that name through the path
that handles several trajectories per session. Choose ``algorithm.adv_estimator=tr_grpo`` for single-turn runs.
"""

from __future__ import annotations

from collections.abc import Callable
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


def _register(name: str, compute: Callable[..., torch.Tensor]) -> None:
    """Register `compute`, which takes rewards, mask, index, epsilon and config, under the signature that veRL calls."""

    @register_adv_est(name)
    def estimate(
        token_level_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        index: np.ndarray,
        epsilon: float = 1e-6,
        config: Any = None,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        advantages = compute(token_level_rewards, response_mask, index, epsilon, config)
        return advantages, advantages


def _tr_grpo(rewards: torch.Tensor, mask: torch.Tensor, index: np.ndarray, epsilon: float, config: Any) -> torch.Tensor:
    return group_relative_advantages(rewards, mask, index, epsilon, normalize_by_std=_normalizes_by_std(config))


def _reinforce_rej(rewards: torch.Tensor, mask: torch.Tensor, index: np.ndarray, *_: Any) -> torch.Tensor:
    return rejection_advantages(rewards, mask, index)


def _w_reinforce(rewards: torch.Tensor, mask: torch.Tensor, index: np.ndarray, _: float, config: Any) -> torch.Tensor:
    return outcome_advantages(rewards, mask, index, OutcomeOptions(**_options(config, "w_reinforce")))


class HistoryAwareEstimator:
    """Estimate HA-DW's advantages; veRL calls it once per batch in the trainer's process, and it keeps the accuracy between.

    A new ``config`` object means a new run and starts a new history. veRL saves nothing of an estimator, so a resumed run
    starts a new history as well, with the accuracy of its first batch.
    """

    def __init__(self) -> None:
        self._run: Any = None
        self._expected: float | None = None

    def __call__(
        self, rewards: torch.Tensor, mask: torch.Tensor, index: np.ndarray, epsilon: float, config: Any
    ) -> torch.Tensor:
        if config is not self._run:
            self._run, self._expected = config, None
        options = DifficultyOptions(**_options(config, "ha_dw"))
        advantages, self._expected = difficulty_weighted_advantages(
            rewards, mask, index, options, self._expected, epsilon, _normalizes_by_std(config)
        )
        return advantages


def _options(config: Any, name: str) -> dict[str, Any]:
    """Return the options of an estimator in veRL's ``algorithm`` node, unchecked."""
    given = (config.get(name) if config is not None else None) or {}
    return {key: value for key, value in given.items() if key != "_target_"}


def _normalizes_by_std(config: Any) -> bool:
    return True if config is None else config.get("norm_adv_by_std_in_grpo", True)


_register("tr_grpo", _tr_grpo)
_register("reinforce_rej", _reinforce_rej)
_register("w_reinforce", _w_reinforce)
_register("ha_dw", HistoryAwareEstimator())
