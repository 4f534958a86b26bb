"""Register the advantage estimators of the core with veRL.

``tr_grpo`` is GRPO's, vectorised and exact for equal rewards; ``reinforce_rej`` drops groups of equal rewards;
``ha_dw`` weights advantages by difficulty, with options from ``algorithm.ha_dw``; ``w_reinforce`` uses right and wrong only,
with options from ``algorithm.w_reinforce``. ``tr_gdpo`` is GDPO with veRL's options ``algorithm.gdpo_reward_keys`` and
``gdpo_reward_weights``, and ``constrained_grpo`` has its options at ``algorithm.constrained_grpo``; these two read the parts of
the reward from the labels that ``group_metrics_buffer`` writes, since veRL's v1 trainer hands an estimator the score alone.

All take ``token_level_rewards`` and ``response_mask``, both (batch, response_length), ``index`` (batch,) with group labels
(veRL's uid), ``epsilon``, which is added to the standard deviation, and ``config``, veRL's ``algorithm`` node. They return
advantages and returns, one and the same tensor (batch, response_length), and refuse a batch with a reward that is not finite:
of veRL's losses some would skip the update silently.

The configurations keep ``adv_estimator: grpo`` as the default, because veRL 0.9 routes only that name through the path
that handles several trajectories per session. Choose ``algorithm.adv_estimator=tr_grpo`` for single-turn runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, register_adv_est

from verl_trgrpo.core import (
    ConstraintOptions,
    DifficultyOptions,
    OutcomeOptions,
    RewardWeights,
    constrained_advantages,
    decoupled_advantages,
    difficulty_weighted_advantages,
    group_relative_advantages,
    outcome_advantages,
    part_values,
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

    def groups_and_parts(self) -> tuple[list[str], list[dict[str, float]], torch.Tensor]:
        """Return each row's group, the parts of the reward of all responses, and which rows are responses, (batch,) bool.

        A response without tokens is one, too: a rollout correction may reject all of them. Rows with which veRL fills a batch
        up have neither tokens nor parts.

        Raises:
            ValueError: a row with tokens has a plain label.
        """
        labels = [split_label(label) for label in self.groups.tolist()]
        parts = [each for _, each in labels if each is not None]
        present = torch.tensor([each is not None for _, each in labels], device=self.mask.device)
        if bool((self.mask.bool().any(dim=-1) & ~present).any()):
            raise ValueError(
                f"adv_estimator={self.config.get('adv_estimator')}: the parts of the reward are missing; this project's replay "
                "buffer hands them on, see trainer.v1.sampler in verl_trgrpo/config/run_defaults.yaml"
            )
        return [group for group, _ in labels], parts, present


def without_target(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section of the configuration without the class that veRL builds from it."""
    return {key: value for key, value in options.items() if key != "_target_"}


def label_with(group: str, parts: Mapping[str, float]) -> str:
    """Return a label of one row, from which ``split_label`` has its group and the parts of its reward again."""
    return json.dumps({"group": group, "parts": parts})


def split_label(label: str) -> tuple[str, dict[str, float] | None]:
    """Return the group of a row and the parts of its reward; None for a label that is a group's alone, as veRL's are."""
    if not label.startswith("{"):
        return label, None
    content = json.loads(label)
    return content["group"], content["parts"]


class Estimator:
    """Compute advantages under the signature that veRL calls, and keep what has to be known of the batches before.

    veRL calls it once per batch, in the trainer's process. ``estimator_state`` saves `state` with each checkpoint.

    Args:
        compute: returns the advantages of a batch.
        remembers: `compute` changes the state, whose values JSON can hold.
        reads_parts: `compute` needs labels from ``label_with``.
    """

    def __init__(
        self,
        compute: Callable[[Batch, dict[str, Any]], torch.Tensor],
        remembers: bool = False,
        reads_parts: bool = False,
    ) -> None:
        self.remembers = remembers
        self.reads_parts = reads_parts
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


def _of_all_rows(values: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
    """Return the values (responses, n) of the rows that are `present`, and 0 for the others: (batch, n)."""
    rows = values.new_zeros(len(present), values.shape[1])
    rows[present] = values
    return rows


def _tr_grpo(batch: Batch, _: dict[str, Any]) -> torch.Tensor:
    return group_relative_advantages(
        batch.rewards, batch.mask, batch.groups, batch.epsilon, normalize_by_std=batch.normalizes_by_std
    )


def _reinforce_rej(batch: Batch, _: dict[str, Any]) -> torch.Tensor:
    return rejection_advantages(batch.rewards, batch.mask, batch.groups)


def _w_reinforce(batch: Batch, _: dict[str, Any]) -> torch.Tensor:
    options = OutcomeOptions(**batch.options("w_reinforce"))
    return outcome_advantages(batch.rewards, batch.mask, batch.groups, options)


def _ha_dw(batch: Batch, state: dict[str, Any]) -> torch.Tensor:
    options = DifficultyOptions(**batch.options("ha_dw"))
    if (remembered := state.setdefault("belief", options.belief)) != options.belief:
        raise ValueError(
            f"algorithm.ha_dw.belief={options.belief}: the run resumes with a history of belief={remembered}, which holds other "
            "values; set it to that, or start over"
        )
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


def _tr_gdpo(batch: Batch, _: dict[str, Any]) -> torch.Tensor:
    config = batch.config
    options = RewardWeights(config.get("gdpo_reward_keys") or (), config.get("gdpo_reward_weights") or ())
    groups, parts, present = batch.groups_and_parts()
    rewards = _of_all_rows(part_values(parts, options.names, present.device), present)
    return decoupled_advantages(
        rewards, batch.mask, groups, options.weights, batch.epsilon, normalize_by_std=batch.normalizes_by_std
    )


def _constrained_grpo(batch: Batch, state: dict[str, Any]) -> torch.Tensor:
    options = ConstraintOptions(**batch.options("constrained_grpo"))
    groups, parts, present = batch.groups_and_parts()
    costs = _of_all_rows(options.values(parts, present.device), present)
    multipliers = options.remembered(state)
    if parts:
        means = costs[present].mean(dim=0).tolist()
        multipliers = options.ascended(state, means, options.damping)
        state["multipliers"] = options.ascended(state, means, options.lr)
    return constrained_advantages(
        batch.rewards,
        costs,
        batch.mask,
        groups,
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


register_adv_est("tr_grpo")(Estimator(_tr_grpo))
register_adv_est("reinforce_rej")(Estimator(_reinforce_rej))
register_adv_est("w_reinforce")(Estimator(_w_reinforce))
register_adv_est("ha_dw")(Estimator(_ha_dw, remembers=True))
register_adv_est("tr_gdpo")(Estimator(_tr_gdpo, reads_parts=True))
register_adv_est("constrained_grpo")(Estimator(_constrained_grpo, remembers=True, reads_parts=True))
