"""The typed home of this project's options in veRL's configuration.

They live at ``actor_rollout_ref.actor.policy_loss`` and, for the estimators ``ha_dw`` and ``w_reinforce``, at ``algorithm``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl.trainer.config import AlgoConfig
from verl.workers.config import PolicyLossConfig

from verl_trgrpo.core import ClipRange, DifficultyOptions, OutcomeOptions, TokenWeighting

# Where the wrapped ppo_loss leaves the entropy in its copy of the actor's configuration, the only argument of a policy loss
# that can carry it.
ENTROPY = "_token_entropy"

# veRL's own losses that take token weights: their names here, and veRL's.
WEIGHTED = {"tr_dppo_tv": "dppo_tv", "tr_dppo_kl": "dppo_kl"}
LOSS_MODES = ("tr_grpo", "aspo", *WEIGHTED)


@dataclass
class TRGRPOPolicyLossConfig(TokenWeighting, PolicyLossConfig):
    """veRL's policy-loss options plus those of :class:`~verl_trgrpo.core.TokenWeighting`.

    Named in the configuration's ``_target_``; ``shaping`` is built by :func:`verl_trgrpo.core.make_shaping`.

    Raises:
        ValueError: for what ``TokenWeighting`` refuses, for a ``loss_mode`` that has no token weights, and for
            ``placement=inside`` with another than tr_grpo.
    """

    loss_mode: str = "tr_grpo"

    def __post_init__(self) -> None:
        from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY  # imports this plugin

        super().__post_init__()
        # veRL itself refuses what nobody has registered.
        if self.loss_mode in POLICY_LOSS_REGISTRY and self.loss_mode not in LOSS_MODES:
            raise ValueError(
                f"policy_loss.loss_mode={self.loss_mode} ignores shaping, placement, prob_source, normalize and kl; leave it at "
                f"{' or '.join(LOSS_MODES)}, or choose another algorithm"
            )
        if self.loss_mode != "tr_grpo" and self.placement != "outside":
            raise ValueError(
                f"placement={self.placement!r} puts the weight into TR-GRPO's clip, which loss_mode={self.loss_mode} does not "
                "have; use placement=outside"
            )


@dataclass
class EstimatorAlgoConfig(AlgoConfig):
    """veRL's ``algorithm`` node plus the options of the estimators ``ha_dw`` and ``w_reinforce``.

    Named in the configuration's ``_target_``, so that mistakes come out when a configuration is validated; the
    estimator itself reads the node as it is.

    Args:
        ha_dw: options of ``adv_estimator: ha_dw``; None means the defaults.
        w_reinforce: options of ``adv_estimator: w_reinforce``; None means the defaults.
    """

    ha_dw: DifficultyOptions | None = None
    w_reinforce: OutcomeOptions | None = None


def token_weighting_of(policy_loss: Any) -> TokenWeighting:
    """The token weights of ``actor.policy_loss``.

    A stock ``PolicyLossConfig`` (``loss_mode=tr_grpo`` on an otherwise untouched configuration) gives the default ones;
    its fields cannot carry options.

    Raises:
        ValueError: for anything else, e.g. a bare ``DictConfig`` whose options would be ignored.
    """
    if isinstance(policy_loss, TokenWeighting):
        return policy_loss
    if isinstance(policy_loss, PolicyLossConfig):
        return TokenWeighting()
    raise ValueError(
        f"actor.policy_loss is a {type(policy_loss).__name__}, whose options cannot be checked; instantiate it through "
        f"_target_: {TRGRPOPolicyLossConfig.__module__}.{TRGRPOPolicyLossConfig.__name__} (algorithm=tr_grpo does)"
    )


def clip_range_of(actor: Any) -> ClipRange:
    """The clip range of an actor configuration, with veRL's fall-backs for missing values."""
    low, high = actor.get("clip_ratio_low"), actor.get("clip_ratio_high")
    return ClipRange(
        low=actor.clip_ratio if low is None else low,
        high=actor.clip_ratio if high is None else high,
        dual=actor.get("clip_ratio_c", 3.0),
    )


def check_kl(actor: Any) -> None:
    """Refuse a weighted KL that contradicts the actor's own KL options; without a KL loss there is nothing to weight.

    Args:
        actor: veRL's ``ActorConfig`` with a ``TokenWeighting`` as its policy loss.

    Raises:
        ValueError: with value, reason and remedy.
    """
    kind = actor.policy_loss.kl
    if kind != "plain" and actor.use_kl_loss and actor.kl_loss_type not in ("low_var_kl", "k3"):
        raise ValueError(
            f"policy_loss.kl={kind!r} is built on the k3 estimator but actor.kl_loss_type={actor.kl_loss_type!r}; "
            "set it to low_var_kl, or policy_loss.kl=plain"
        )
