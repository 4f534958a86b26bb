"""Define this project's options in veRL's configuration, and read them and the reward function from a run's configuration.

The options are at ``actor_rollout_ref.actor.policy_loss`` and, for the estimators, at ``algorithm``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from verl.trainer.config import AlgoConfig
from verl.workers.config import PolicyLossConfig

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.core import (
    ClipRange,
    ConstraintOptions,
    DifficultyOptions,
    HighEntropyClip,
    LoptiOptions,
    NTHROptions,
    OutcomeOptions,
    RewardWeights,
    TokenWeighting,
)
from verl_trgrpo.verl_plugin import LOSS_MODES, WEIGHTED, WITHOUT_WEIGHTS

# The attribute in which the wrapped ppo_loss passes what a policy loss does not get, as keyword arguments of Tokens.of_batch:
# of its copy of the actor's configuration, the only argument of a policy loss that can carry it.
TOKEN_INPUTS = "_token_inputs"


@dataclass
class TRGRPOPolicyLossConfig(TokenWeighting, PolicyLossConfig):
    """Extend veRL's policy-loss options by those of :class:`~verl_trgrpo.core.TokenWeighting`.

    The configuration's ``_target_`` names it; ``shaping`` is built by :func:`verl_trgrpo.core.make_shaping`. A loss of
    veRL's becomes the same loss with token weights: ``loss_mode=gspo`` is ``tr_gspo`` here, ``vanilla`` is ``tr_grpo``.

    Args:
        high_entropy_clip: clip range of the tokens of high entropy for ``loss_mode=aspo``; None for one range.
        lopti: update twice per batch, with rare tokens and with the others; None means once.
        nthr: scale advantages by the influence of tokens before the update; None means not.

    Raises:
        ValueError: what ``TokenWeighting`` refuses, a ``loss_mode`` without token weights, ``placement=inside`` with a
            ``loss_mode`` other than tr_grpo, or ``high_entropy_clip`` with one other than aspo.
    """

    loss_mode: str = "tr_grpo"
    high_entropy_clip: HighEntropyClip | None = None
    lopti: LoptiOptions | None = None
    nthr: NTHROptions | None = None

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
                f"policy_loss.high_entropy_clip is for loss_mode=aspo, not loss_mode={self.loss_mode}; set it to null"
            )
        self._install()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore options that were sent to a worker."""
        vars(self).update(state)
        self._install()

    def _install(self) -> None:
        if self.lopti is not None or self.nthr is not None:
            from verl_trgrpo.verl_plugin import train_mini_batch  # imports veRL's workers, which takes seconds

            train_mini_batch.install()


def weighted_loss_mode(name: str) -> str:
    """Return the registered name of the policy loss `name` with token weights; a name that is not registered stays as it is.

    Raises:
        ValueError: a loss that has no place for the weight of a token, or one of another plugin.
    """
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY  # imports this plugin

    found = WEIGHTED.get(name, name)
    # veRL itself refuses a loss that is not registered.
    if found in LOSS_MODES or found not in POLICY_LOSS_REGISTRY:
        return found
    reason = WITHOUT_WEIGHTS.get(name, "is not known to multiply the loss of each token by a weight")
    raise ValueError(
        f"policy_loss.loss_mode={name}: {reason}, so shaping, placement, prob_source, normalize and kl would be ignored; "
        f"remove the shaping, or set loss_mode to {', '.join((*WEIGHTED, 'aspo'))}"
    )


@dataclass
class EstimatorAlgoConfig(AlgoConfig):
    """Extend veRL's ``algorithm`` node by the options of the estimators of this project.

    The configuration's ``_target_`` names it, so that wrong values are found when a configuration is validated; the
    estimators read the node itself.

    Args:
        ha_dw: options of ``adv_estimator: ha_dw``; None means the defaults.
        w_reinforce: options of ``adv_estimator: w_reinforce``; None means the defaults.
        constrained_grpo: options of ``adv_estimator: constrained_grpo``.

    Raises:
        ValueError: veRL's own ``gdpo_reward_keys`` and ``gdpo_reward_weights`` do not fit ``adv_estimator: tr_gdpo``.
    """

    ha_dw: DifficultyOptions | None = None
    w_reinforce: OutcomeOptions | None = None
    constrained_grpo: ConstraintOptions | None = None

    def __post_init__(self) -> None:
        if self.adv_estimator == "tr_gdpo":
            RewardWeights(self.gdpo_reward_keys or (), self.gdpo_reward_weights or ())


def token_weighting_of(policy_loss: Any) -> TokenWeighting:
    """Return the token weighting of ``actor.policy_loss``.

    A stock ``PolicyLossConfig`` (``loss_mode=tr_grpo`` in an otherwise unchanged configuration) gives the default; it has no
    fields for the options.

    Raises:
        ValueError: anything else, e.g. a bare ``DictConfig`` whose options would be ignored.
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
    """Return the clip range of an actor configuration, with veRL's fall-backs for missing values."""
    low, high = actor.get("clip_ratio_low"), actor.get("clip_ratio_high")
    return ClipRange(
        low=actor.clip_ratio if low is None else low,
        high=actor.clip_ratio if high is None else high,
        dual=actor.get("clip_ratio_c", 3.0),
        high_entropy=actor.policy_loss.get("high_entropy_clip"),
    )


def token_inputs_of(actor: Any) -> dict[str, torch.Tensor]:
    """Return the inputs of tokens that the wrapped ``ppo_loss`` passes beside veRL's arguments.

    Returns:
        keyword arguments of ``Tokens.of_batch``, each (batch, response_length): the entropy, if the run computes it, and the
        columns that the shaping asks for.
    """
    return getattr(actor, TOKEN_INPUTS, {})


def check_kl(actor: Any) -> None:
    """Check that a weighted KL agrees with the actor's own KL options, if the run has a KL loss.

    Args:
        actor: veRL's ``ActorConfig`` with a ``TokenWeighting`` as its policy loss.

    Raises:
        ValueError: ``kl_loss_type`` is not the k3 estimator.
    """
    kind = actor.policy_loss.kl
    if kind != "plain" and actor.use_kl_loss and actor.kl_loss_type not in ("low_var_kl", "k3"):
        raise ValueError(
            f"policy_loss.kl={kind!r} is built on the k3 estimator but actor.kl_loss_type={actor.kl_loss_type!r}; "
            "set it to low_var_kl, or policy_loss.kl=plain"
        )


def check_batch_updates(actor: Any) -> None:
    """Check that an actor's options allow its Lopti and NTHR, if it has them.

    Args:
        actor: veRL's ``ActorConfig`` with a ``TRGRPOPolicyLossConfig``.

    Raises:
        ValueError: options that do not; all are listed.
    """
    messages = []
    if actor.policy_loss.lopti is not None and actor.loss_agg_mode == "seq-mean-token-mean":
        messages.append(
            "loss_agg_mode=seq-mean-token-mean divides a pass of policy_loss.lopti by its own tokens of a response, which makes "
            "rare tokens weigh more; set it to token-mean"
        )
    if actor.policy_loss.lopti is not None and actor.policy_loss.loss_mode == "tr_gspo":
        messages.append(
            "loss_mode=gspo takes the ratio of a response over the tokens of a pass of policy_loss.lopti, not over all; set it "
            "to tr_grpo"
        )
    if actor.policy_loss.nthr is not None:
        parts = getattr(actor.engine, "ulysses_sequence_parallel_size", 1)
        for setting, wrong, right in (
            (f"strategy={actor.strategy}", actor.strategy not in ("fsdp", "fsdp2"), "fsdp2"),
            ("use_fused_kernels=true", actor.use_fused_kernels, "false"),
            (f"ulysses_sequence_parallel_size={parts}", parts > 1, "1"),
        ):
            if wrong:
                messages.append(f"{setting} hides hidden states or logits from policy_loss.nthr; set it to {right}")
    raise_invalid(messages)
