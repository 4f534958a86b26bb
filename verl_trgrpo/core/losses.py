"""Compute TR-GRPO's objective: token weights, clipped policy losses, their aggregation and the weighted KL penalty.

Method: arXiv 2511.00066; its open choices are the options of ``TokenWeighting``. Tensors have the shape
(batch, response_length); r is the importance ratio pi_theta / pi_old, A the advantage, w the weight of a token.
tests/core/test_policy_loss.py, test_aspo.py and test_aggregation_and_kl.py compute all of it once more from the formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.core.metrics import Clipping, TokenStatistic, token_metrics, weight_sums
from verl_trgrpo.core.options import ClipRange, HighEntropyClip
from verl_trgrpo.core.shaping import Shaping, make_shaping
from verl_trgrpo.core.tokens import MAX_LOG_RATIO, Tokens, check_shapes, masked

LOSS_AGG_MODES = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
)

# Values of token losses without gradient, where they are constants, and what was clipped; (batch, response_length) each.
_Surrogate = tuple[torch.Tensor, torch.Tensor, Clipping]

_CHOICES = {
    "placement": ("outside", "inside"),
    "prob_source": ("current", "old"),
    "normalize": ("none", "token_mean"),
    "kl": ("plain", "scaled", "literal"),
}


@dataclass
class TokenWeighting:
    """Choose how token weights are computed and where they enter the loss.

    Args:
        shaping: maps a token to its weight; default is TR-GRPO's sigmoid of the token's probability.
        placement: ``outside`` (default) multiplies the clipped surrogate. ``inside`` puts w * r into both branches of the
            min and the clip, as reviews describe the paper's equation; with clip 0.2 and w = 1.4 an on-policy token with A > 0
            is then already past the clip and gets no gradient. The ASPO surrogate is always weighted outside.
        prob_source: ``current`` (default) weights by pi_theta, detached; ``old`` by pi_old, so that the weights are constant
            within an update. It says what ``probs`` is, so ``old`` is for shapings that take it, and not ``old_probs`` beside it.
        normalize: ``none`` (default), or ``token_mean`` to divide the weights by their mean over the valid tokens of the
            micro-batch, which removes the common factor and leaves only the shape.
        kl: how the weights enter the KL loss, if the run has one: ``plain`` (default) not at all; ``scaled`` is w * k3;
            ``literal`` is w rho - log(w rho) - 1 with rho = pi_ref / pi_theta, the paper's form. ``literal`` is not zero at
            pi_theta = pi_ref unless w = 1, and its gradient there pushes the policy away from the reference.

    Raises:
        ValueError: an unknown choice or an impossible combination; all problems are listed.
    """

    shaping: Shaping = field(default_factory=make_shaping)
    placement: str = "outside"
    prob_source: str = "current"
    normalize: str = "none"
    kl: str = "plain"

    def __post_init__(self) -> None:
        messages = [
            f"{name}={getattr(self, name)!r} is unknown; choose {' or '.join(choices)}"
            for name, choices in _CHOICES.items()
            if getattr(self, name) not in choices
        ]
        if not isinstance(self.shaping, Shaping):
            messages.append(
                f"shaping={self.shaping!r} is not a Shaping; build the shaping with make_shaping(name, ...)"
            )
        elif self.kl == "literal" and self.shaping.bounds[0] <= 0:
            messages.append(
                f"kl='literal' takes log(w), but shaping {self.shaping} may give the weight 0; "
                "raise its lower bound above 0 or use kl='scaled'"
            )
        if isinstance(self.shaping, Shaping) and self.prob_source == "old":
            if "probs" not in self.shaping.inputs:
                messages.append(
                    f"prob_source='old' has no effect: shaping {self.shaping} takes {', '.join(self.shaping.inputs)}, not probs; "
                    "set prob_source='current'"
                )
            elif "old_probs" in self.shaping.inputs:
                messages.append(
                    f"prob_source='old': shaping {self.shaping} compares probs with old_probs, which would be equal; set "
                    "prob_source='current'"
                )
        raise_invalid(messages)

    def normalized(self, weights: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        """Return `weights` as they enter the loss: divided by their mean over `valid` tokens if `normalize` says so."""
        if self.normalize == "none":
            return weights
        mean = (weights * valid).sum() / valid.sum().clamp(min=1)
        # Weights that are all 0 (a floor of 0 allows it) cannot be scaled to mean 1 and stay as they are.
        return weights / torch.where(mean > 0, mean, 1.0)


@dataclass(frozen=True)
class PolicyLoss:
    """Hold what ``compute_policy_loss`` returns.

    Args:
        loss: scalar to minimise, connected to ``log_prob``.
        metrics: over valid tokens. ``pg_clipfrac``, ``ppo_kl``, ``pg_clipfrac_lower`` are floats, as veRL's vanilla loss
            reports them; ``tr_*`` are ``TokenStatistic``, floats that can be merged over micro-batches: mean and standard
            deviation of w (``tr_weight_mean``, ``tr_weight_std``), shares of tokens with the smallest and the largest
            weight (``tr_weight_at_lower``, ``tr_weight_at_upper``), share of the gradient proxy |A| w (1 - p) from tokens
            with p < 0.25 (``tr_grad_share_low_prob``) and share of tokens that clipping leaves without gradient
            (``tr_zero_grad_frac``), each of the last two also as ``..._uniform``, with w = 1.
    """

    loss: torch.Tensor
    metrics: dict[str, float | TokenStatistic]

    @property
    def means(self) -> dict[str, float]:
        """Return the metrics of this micro-batch as plain floats, for a logger; use ``metrics`` to merge micro-batches."""
        return {name: float(value) for name, value in self.metrics.items()}


def compute_policy_loss(
    log_prob: torch.Tensor,
    *,
    old_log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    weighting: TokenWeighting,
    clip: ClipRange,
    surrogate: str = "ppo",
    loss_agg_mode: str = "token-mean",
    rollout_is_weights: torch.Tensor | None = None,
    entropy: torch.Tensor | None = None,
    ref_log_prob: torch.Tensor | None = None,
    success_rate: torch.Tensor | None = None,
    rollout_log_prob: torch.Tensor | None = None,
    responses: torch.Tensor | None = None,
    **global_batch_info: Any,
) -> PolicyLoss:
    """Compute a token-weighted policy loss and its metrics.

    ``ppo`` is the negated objective of arXiv 2511.00066, ``-1/N sum w min(r A, clip(r, 1 - low, 1 + high) A)`` with dual
    clip for A < 0. With the uniform shaping it is veRL's vanilla loss, equal in value and gradient within rounding.

    ``aspo`` is ASPO (arXiv 2510.06062), which replaces r by c = 1/r for A > 0: ``-1/N sum w A c`` with the gradient
    ``-1/N sum w A c grad log pi``. PPO's hard clip stays and looks at r itself: no gradient where r > 1 + high and A > 0,
    or r < 1 - low and A < 0. Dual clip applies to both signs and is soft: c stops at ``clip.dual`` and the token keeps its
    gradient. On-policy (r = 1) this is GRPO. The gradient is that of the authors' public code
    (github.com/wizard-III/Archer2.0, ``compute_policy_loss_archer``), whose two clip ranges, by entropy, are
    ``clip.high_entropy``; the reported loss of capped tokens is -A c, theirs -A c log pi.

    Nothing outside the mask, not even NaN, reaches the loss or the gradient.

    Args:
        log_prob: (batch, response_length) log pi_theta of the sampled tokens, <= 0; the only input that gradient flows to.
        old_log_prob: (batch, response_length) log pi_old of the same tokens, may be -inf.
        advantages: (batch, response_length) A.
        response_mask: (batch, response_length) 1 or True for tokens that the model generated.
        weighting: how weights are computed and where they enter.
        clip: bounds of the importance ratio.
        surrogate: ``ppo`` or ``aspo``.
        loss_agg_mode: how 1/N is taken, see ``aggregate_loss``.
        rollout_is_weights: (batch, response_length) weights that correct the mismatch of rollout and training policy.
        entropy: (batch, response_length) entropy of pi_theta at each position in nats, for what takes it.
        ref_log_prob: (batch, response_length) log pi_ref of the same tokens, for shapings that take it.
        success_rate: (batch, response_length) share of right responses in the group, for shapings that take it.
        rollout_log_prob: (batch, response_length) log-probabilities of the rollout engine, for shapings that take them.
        responses: (batch, response_length) ids of the tokens, for shapings that take them.
        **global_batch_info: counts over micro-batches and ranks, passed on to ``aggregate_loss``.

    Returns:
        loss and metrics.

    Raises:
        ValueError: tensors of different shapes, an unknown surrogate or aggregation, a missing input, or
            ``clip.high_entropy`` with another surrogate than ``aspo``.
    """
    if surrogate not in _SURROGATES:
        raise ValueError(f"surrogate={surrogate!r} is unknown; choose {' or '.join(_SURROGATES)}")
    if clip.high_entropy is not None and surrogate != "aspo":
        raise ValueError(f"high_entropy_clip is for surrogate='aspo', not {surrogate!r}; set high_entropy_clip=None")
    tokens = Tokens.of_batch(
        log_prob,
        old_log_prob=old_log_prob,
        advantages=advantages,
        response_mask=response_mask,
        entropy=entropy,
        ref_log_prob=ref_log_prob,
        success_rate=success_rate,
        rollout_log_prob=rollout_log_prob,
        responses=responses,
    )
    valid, log_ratio, advantages = tokens.valid, tokens.log_ratio, tokens.advantages
    high_entropy = clip.high_entropy.applies(tokens) if clip.high_entropy else None
    with torch.no_grad():
        weights = weighting.shaping.weigh(tokens, weighting.prob_source)
        sums = weight_sums(tokens, weights, weighting.shaping.bounds)
        if high_entropy is not None and tokens.entropy is not None:
            weights = weights.masked_fill(~tokens.entropy.isfinite(), torch.nan)
        # What is no longer needed should not count into the peak memory.
        del tokens
        weights = weighting.normalized(weights, valid)
        values, constant, clipping = _SURROGATES[surrogate](
            log_ratio.detach(), advantages, weights, weighting.placement, clip, high_entropy
        )
        if rollout_is_weights is not None:
            check_shapes(log_prob=log_prob, rollout_is_weights=rollout_is_weights)
            values.mul_(masked(rollout_is_weights, ~valid))
        del weights
    token_losses = _Differentiable.apply(log_ratio, values, constant)
    loss = aggregate_loss(token_losses, response_mask=valid, loss_agg_mode=loss_agg_mode, **global_batch_info)
    del token_losses, values
    return PolicyLoss(loss, token_metrics(sums, log_ratio, clipping))


def token_weights(tokens: Tokens, weighting: TokenWeighting) -> torch.Tensor:
    """Return the weights w of the tokens' losses, (batch, response_length) without gradient, 1 outside the mask.

    With ``normalize=token_mean`` what stands outside the mask is divided, too.
    """
    return weighting.normalized(weighting.shaping.weigh(tokens, weighting.prob_source), tokens.valid)


class _Differentiable(torch.autograd.Function):
    """Give the values of token losses a derivative by log r, and keep nothing else for the backward pass."""

    @staticmethod
    def forward(ctx: Any, log_ratio: torch.Tensor, values: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(values.masked_fill(constant, 0.0))
        return values

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return grads[0] * slope, None, None


def _ppo_surrogate(
    log_ratio: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    placement: str,
    clip: ClipRange,
    high_entropy: torch.Tensor | None,
) -> _Surrogate:
    """Return the values of PPO's token losses with dual clip, where they are constants, and what was clipped.

    With x = r (``outside``) or x = w r (``inside``), and c(x) the value that min, clip and dual clip select, the loss of a
    token is -A w c(r) or -A c(w r). Where c(x) is a bound, it is a constant. Where c(x) = x, both are -A w r, whose
    derivative by log r is the loss itself.
    """
    ratio = log_ratio.exp()
    x = weights * ratio if placement == "inside" else ratio
    losses = _bounded_ratio(x, advantages, clip)
    # Not `!=`: the gradient of a ratio that is NaN has to be NaN.
    constant = (x < losses).logical_or_(x > losses)
    beyond = constant & (advantages != 0)
    dual_clipped = beyond & (advantages < 0) & (x > clip.dual)
    beyond_uniform = beyond
    if placement == "inside":
        beyond_uniform = (_bounded_ratio(ratio, advantages, clip) != ratio) & (advantages != 0)
    else:
        losses.mul_(weights)
    return (
        losses.mul_(advantages).neg_(),
        constant,
        Clipping(beyond & ~dual_clipped, dual_clipped, beyond, beyond_uniform),
    )


def _aspo_surrogate(
    log_ratio: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    placement: str,
    clip: ClipRange,
    high_entropy: torch.Tensor | None,
) -> _Surrogate:
    """Return the values of ASPO's token losses, where they are constants, and what was clipped; weights are always outside.

    With c = 1/r for A > 0 and r for A < 0, within its bounds, the loss of a token is the number -A w c, and so is its
    derivative by log r where the hard clip does not apply. That of PPO is -A w r for both signs, which damps itself for bad
    tokens and feeds itself for good ones.
    """
    positive = advantages > 0
    flipped = torch.where(positive, -log_ratio, log_ratio).exp()

    # For A > 0, r > 1 + high is 1/r < 1 / (1 + high).
    def within(clip_range: ClipRange | HighEntropyClip) -> torch.Tensor:
        good = flipped.clamp(1 / (1 + clip_range.high), clip.dual)
        return torch.where(positive, good, flipped.clamp(1 - clip_range.low, clip.dual))

    bounded = within(clip)
    if clip.high_entropy is not None and high_entropy is not None:
        bounded = torch.where(high_entropy, within(clip.high_entropy), bounded)
    clipped = (flipped < bounded) & (advantages != 0)
    dual_clipped = (flipped > bounded) & (advantages != 0)
    losses = bounded.mul_(weights).mul_(advantages).neg_()
    return losses, clipped, Clipping(clipped, dual_clipped, clipped, clipped)


_SURROGATES: dict[str, Callable[..., _Surrogate]] = {
    "ppo": _ppo_surrogate,
    "aspo": _aspo_surrogate,
}


def _bounded_ratio(ratio: torch.Tensor, advantages: torch.Tensor, clip: ClipRange) -> torch.Tensor:
    """Return the ratio at which ``min(r A, clip(r) A)`` with dual clip takes its value: r itself within its bounds.

    For A > 0 the bound is 1 + high; for A < 0 the bounds are 1 - low and dual. Returns a new tensor, the only one it takes.
    """
    negative = advantages < 0
    upper = torch.full_like(ratio, 1 + clip.high).masked_fill_(negative, clip.dual)
    bounded = torch.minimum(ratio, upper, out=upper)
    return bounded.masked_fill_(negative & (ratio < 1 - clip.low), 1 - clip.low)


def aggregate_loss(
    token_losses: torch.Tensor,
    *,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    dp_size: int = 1,
    batch_num_tokens: int | torch.Tensor | None = None,
    global_batch_size: int | torch.Tensor | None = None,
    loss_scale_factor: float | None = None,
) -> torch.Tensor:
    """Aggregate token losses of one micro-batch so that micro-batches and ranks add up to the global mean.

    Equals veRL's ``agg_loss``, except that an empty mask gives 0 (with gradients of 0) where that divides by 0.

    Args:
        token_losses: (batch, response_length), 0 outside the mask.
        response_mask: (batch, response_length) 1 or True for tokens that count.
        loss_agg_mode: ``token-mean``, ``token-sum``, ``seq-mean-token-sum``, ``seq-mean-token-mean`` or
            ``seq-mean-token-sum-norm``.
        dp_size: number of data-parallel ranks whose gradients are averaged afterwards.
        batch_num_tokens: valid tokens in the global mini-batch; None means those of this mask (dp_size 1 only).
        global_batch_size: sequences in the global mini-batch; None means the non-empty ones of this mask.
        loss_scale_factor: divisor of ``seq-mean-token-sum-norm``; None means response_length, which veRL pads to the
            longest response of a micro-batch, so that the loss then depends on how a batch is split.

    Returns:
        scalar, connected to ``token_losses``.

    Raises:
        ValueError: unknown mode, or a global count is missing although dp_size > 1.
    """
    if loss_agg_mode not in LOSS_AGG_MODES:
        raise ValueError(f"loss_agg_mode={loss_agg_mode!r} is unknown; choose one of {', '.join(LOSS_AGG_MODES)}")
    if loss_agg_mode == "token-sum":
        return token_losses.sum() * dp_size
    if loss_agg_mode == "token-mean":
        count = _global_count("batch_num_tokens", batch_num_tokens, response_mask, dp_size)
        return token_losses.sum() / count * dp_size

    lengths = response_mask.count_nonzero(dim=-1)
    sequence_losses = token_losses.sum(dim=-1)
    if loss_agg_mode == "seq-mean-token-mean":
        sequence_losses = sequence_losses / lengths.clamp(min=1)
    count = _global_count("global_batch_size", global_batch_size, lengths, dp_size)
    loss = sequence_losses.sum() / count * dp_size
    if loss_agg_mode == "seq-mean-token-sum-norm":
        loss = loss / (response_mask.shape[-1] if loss_scale_factor is None else loss_scale_factor)
    return loss


def _global_count(name: str, given: int | torch.Tensor | None, local: torch.Tensor, dp_size: int) -> int | torch.Tensor:
    """Return the divisor: the global count where given, else that of `local`; at least 1, as 0 tokens have no loss."""
    if given is None:
        if dp_size > 1:
            raise ValueError(f"{name} is required when dp_size={dp_size} > 1; pass the count over all ranks")
        return local.count_nonzero().clamp(min=1)
    return given.clamp(min=1) if isinstance(given, torch.Tensor) else max(given, 1)


def weighted_kl(
    log_prob: torch.Tensor,
    *,
    ref_log_prob: torch.Tensor,
    weights: torch.Tensor,
    response_mask: torch.Tensor,
    kind: str,
) -> torch.Tensor:
    """Compute per-token KL penalties with token weights; with weights 1 both kinds are the k3 estimator (``low_var_kl``).

    With rho = pi_ref / pi_theta: ``scaled`` is w * (rho - log rho - 1). ``literal`` is w rho - log(w rho) - 1, the form
    printed in arXiv 2511.00066; it is w - log w - 1 > 0 at pi_theta = pi_ref, and its gradient there is (1 - w) times
    grad log pi_theta: gradient descent raises pi_theta of tokens with w > 1 above the reference.

    log rho is clamped to [-20, 20] and the estimate to [-10, 10], as veRL clamps its own k3.

    Args:
        log_prob: (batch, response_length) log pi_theta, with gradient.
        ref_log_prob: (batch, response_length) log pi_ref, may be -inf.
        weights: (batch, response_length) without gradient, > 0 for ``literal``.
        response_mask: (batch, response_length) 1 or True for generated tokens; values outside may be anything, even NaN.
        kind: ``scaled`` or ``literal``.

    Returns:
        (batch, response_length) penalties, 0 outside the mask.

    Raises:
        ValueError: another kind.
    """
    if kind not in ("scaled", "literal"):
        raise ValueError(f"kl={kind!r} is not a weighted kind; choose scaled or literal (plain is veRL's own)")
    outside = ~response_mask.bool()
    log_prob, ref_log_prob = masked(log_prob, outside), masked(ref_log_prob, outside)
    weights = masked(weights, outside).masked_fill(outside, 1.0)
    log_rho = (ref_log_prob.clamp(min=torch.finfo(ref_log_prob.dtype).min) - log_prob).clamp(
        -MAX_LOG_RATIO, MAX_LOG_RATIO
    )
    if kind == "scaled":
        return weights * (log_rho.exp() - log_rho - 1).clamp(-10, 10)
    return (weights * log_rho.exp() - weights.log() - log_rho - 1).clamp(-10, 10)
