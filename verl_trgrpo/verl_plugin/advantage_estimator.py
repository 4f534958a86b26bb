"""The advantage estimator ``tr_grpo`` as veRL calls it: GRPO's, vectorised and exact for equal rewards.

The configurations keep ``adv_estimator: grpo`` as the default, because veRL 0.9 routes only that name through the path
that handles several trajectories per session. Choose ``algorithm.adv_estimator=tr_grpo`` for single-turn runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import register_adv_est

from verl_trgrpo.advantages import group_relative_advantages


@register_adv_est("tr_grpo")
def compute_tr_grpo_outcome_advantage(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    epsilon: float = 1e-6,
    norm_adv_by_std_in_grpo: bool | None = None,
    config: Any = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Group-relative advantages; see :func:`verl_trgrpo.advantages.group_relative_advantages`.

    Args:
        token_level_rewards: (batch, response_length) rewards.
        response_mask: (batch, response_length) 1 or True for generated tokens.
        index: (batch,) group labels (veRL's uid).
        epsilon: added to the standard deviation.
        norm_adv_by_std_in_grpo: False for Dr.GRPO; None takes veRL's key from ``config`` (default True).
        config: veRL's ``algorithm`` node.

    Returns:
        advantages and returns, one and the same tensor (batch, response_length).
    """
    if norm_adv_by_std_in_grpo is None:
        norm_adv_by_std_in_grpo = True if config is None else config.get("norm_adv_by_std_in_grpo", True)
    advantages = group_relative_advantages(
        token_level_rewards, response_mask, index, epsilon, normalize_by_std=norm_adv_by_std_in_grpo
    )
    return advantages, advantages
