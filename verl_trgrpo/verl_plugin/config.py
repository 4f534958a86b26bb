"""Define this project's options in veRL's configuration.

They are at ``actor_rollout_ref.actor.policy_loss`` and, for the estimators, at ``algorithm``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl.trainer.config import AlgoConfig
from verl.workers.config import PolicyLossConfig

from verl_trgrpo.core import (
    DifficultyOptions,
    HighEntropyClip,
    LoptiOptions,
    OffPolicyMask,
    OutcomeOptions,
    TokenWeighting,
)
from verl_trgrpo.verl_plugin import lopti
from verl_trgrpo.verl_plugin.loss_names import weighted_loss_mode


@dataclass
class TRGRPOPolicyLossConfig(TokenWeighting, PolicyLossConfig):
    """Extend veRL's policy-loss options by those of :class:`~verl_trgrpo.core.TokenWeighting`.

    The configuration's ``_target_`` names it; ``shaping`` is built by :func:`verl_trgrpo.core.make_shaping`. A loss of
    veRL's becomes the same loss with token weights: ``loss_mode=gspo`` is ``tr_gspo`` here, ``vanilla`` is ``tr_grpo``.

    Args:
        high_entropy_clip: clip range of the tokens of high entropy for ``loss_mode=aspo``; None for one range.
        lopti: update twice per batch, with rare tokens and with the others; None means once.
        opsm: leave out wrong responses from which the policy has moved away; None means that none is.

    Raises:
        ValueError: what ``TokenWeighting`` refuses, a ``loss_mode`` without token weights, ``placement=inside`` with a
            ``loss_mode`` other than tr_grpo, or ``high_entropy_clip`` with one other than aspo.
    """

    loss_mode: str = "tr_grpo"
    high_entropy_clip: HighEntropyClip | None = None
    lopti: LoptiOptions | None = None
    opsm: OffPolicyMask | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "loss_mode", weighted_loss_mode(self.loss_mode))  # veRL's options are frozen
        if self.loss_mode != "tr_grpo" and self.placement != "outside":
            raise ValueError(
                f"placement={self.placement!r} puts the weight into TR-GRPO's clip, which loss_mode={self.loss_mode} does not "
                "have; set placement=outside"
            )
        if self.loss_mode != "aspo" and self.high_entropy_clip is not None:
            raise ValueError(
                f"policy_loss.high_entropy_clip is for loss_mode=aspo, not loss_mode={self.loss_mode}; set "
                "policy_loss.high_entropy_clip=null"
            )
        self._install()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore options that were sent to a worker."""
        vars(self).update(state)
        self._install()

    def _install(self) -> None:
        if self.lopti is not None:
            lopti.install_lopti()


@dataclass
class EstimatorAlgoConfig(AlgoConfig):
    """Extend veRL's ``algorithm`` node by the options of the estimators of this project.

    The configuration's ``_target_`` names it, so that wrong values are found when a configuration is validated; the
    estimators read the node itself.

    Args:
        ha_dw: options of ``adv_estimator: ha_dw``; None means the defaults.
        w_reinforce: options of ``adv_estimator: w_reinforce``; None means the defaults.
    """

    ha_dw: DifficultyOptions | None = None
    w_reinforce: OutcomeOptions | None = None
