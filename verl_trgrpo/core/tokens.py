"""Hold the tokens of a micro-batch, checked once and masked so that values outside the mask cannot do harm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

# veRL's bound of log-ratios.
MAX_LOG_RATIO = 20.0


@dataclass(frozen=True)
class Tokens:
    """Hold a micro-batch for a shaping or for a loss of your own; ``of_batch`` builds it.

    All tensors are (batch, response_length) in float32 or wider, and 0 outside the mask.

    Args:
        log_prob: log pi_theta of the sampled tokens, with gradient.
        old_log_prob: log pi_old of the same tokens.
        log_ratio: log r with gradient, clamped as in veRL's vanilla loss; without gradient beyond the bounds.
        advantages: A.
        valid: bool, True for tokens that the model generated.
        entropy: of pi_theta at each position in nats; None where the run does not compute it.
        ref_log_prob: log pi_ref of the same tokens; None where the run has no reference policy.
        success_rate: share of right responses in the group of the token's response, in [0, 1], the same for all tokens of a
            response; None where the run does not compute it.
        rollout_log_prob: log-probability of the same tokens in the rollout engine; None where the run does not keep it.
        responses: ids of the same tokens, integers; None outside a trainer that has them.
    """

    log_prob: torch.Tensor
    old_log_prob: torch.Tensor
    log_ratio: torch.Tensor
    advantages: torch.Tensor
    valid: torch.Tensor
    entropy: torch.Tensor | None = None
    ref_log_prob: torch.Tensor | None = None
    success_rate: torch.Tensor | None = None
    rollout_log_prob: torch.Tensor | None = None
    responses: torch.Tensor | None = None

    @classmethod
    def of_batch(
        cls,
        log_prob: torch.Tensor,
        *,
        old_log_prob: torch.Tensor,
        advantages: torch.Tensor,
        response_mask: torch.Tensor,
        entropy: torch.Tensor | None = None,
        ref_log_prob: torch.Tensor | None = None,
        success_rate: torch.Tensor | None = None,
        rollout_log_prob: torch.Tensor | None = None,
        responses: torch.Tensor | None = None,
    ) -> Tokens:
        """Build the tokens of a trainer's tensors, all (batch, response_length).

        Args:
            log_prob: log pi_theta of the sampled tokens, with gradient.
            old_log_prob: log pi_old of the same tokens.
            advantages: A.
            response_mask: 1 or True for tokens that the model generated; values outside may be anything, even NaN.
            entropy: of pi_theta at each position in nats.
            ref_log_prob: log pi_ref of the same tokens, may be -inf.
            success_rate: share of right responses in the group of the token's response.
            rollout_log_prob: of the rollout engine.
            responses: ids of the tokens.

        Raises:
            ValueError: tensors of different shapes.
        """
        given = {"old_log_prob": old_log_prob, "log_prob": log_prob, "advantages": advantages}
        more = {"entropy": entropy, "ref_log_prob": ref_log_prob, "success_rate": success_rate}
        more["rollout_log_prob"] = rollout_log_prob
        check_shapes(response_mask=response_mask, responses=responses, **given, **more)
        valid = response_mask.bool()
        outside = ~valid
        log_prob, old_log_prob = masked(log_prob, outside), masked(old_log_prob.detach(), outside)
        # A token of probability 0 under both policies would have the log-ratio -inf - -inf, which is NaN.
        old_log_prob.clamp_(min=torch.finfo(old_log_prob.dtype).min)
        return cls(
            log_prob,
            old_log_prob,
            _bounded(log_prob - old_log_prob),
            masked(advantages.detach(), outside),
            valid,
            responses=None if responses is None else responses.masked_fill(outside, 0),
            **{name: None if tensor is None else masked(tensor.detach(), outside) for name, tensor in more.items()},
        )

    # Computed at each call: an exponential costs less than a tensor that stays.
    @property
    def probs(self) -> torch.Tensor:
        """pi_theta of the sampled tokens in [0, 1], without gradient; a new tensor."""
        return self.log_prob.detach().exp().clamp_(max=1.0)

    @property
    def old_probs(self) -> torch.Tensor:
        """pi_old of the sampled tokens in [0, 1]; a new tensor."""
        return self.old_log_prob.exp().clamp_(max=1.0)


def _bounded(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return ``log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)``, which would keep its input for the backward pass."""
    bounded = log_ratio.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.where(bounded == log_ratio, log_ratio, bounded)


def masked(tensor: torch.Tensor, outside: torch.Tensor) -> torch.Tensor:
    """Return a copy in float32 or wider with 0 where ``outside`` is True."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32)).masked_fill(outside, 0.0)


def quantile(values: torch.Tensor, counted: torch.Tensor, share: float) -> torch.Tensor:
    """Return the quantile of the counted values of each row, (batch, 1); NaN where none is. NaN is never counted.

    It is ``torch.nanquantile``, which sorts all values; here those above the quantile are.

    Args:
        values: (batch, n).
        counted: True for the values that count, (batch, n).
        share: of the values that are below, in (0, 1].
    """
    counted = counted & ~values.isnan()
    last = (counted.sum(-1, keepdim=True) - 1).clamp(min=0)
    place = share * last.double()
    above = min(math.ceil((1 - share) * (values.shape[-1] - 1)) + 2, values.shape[-1])
    largest = values.masked_fill(~counted, -torch.inf).topk(above, -1).values
    low, high = (largest.gather(-1, last - end.long()) for end in (place.floor(), place.ceil()))
    return torch.lerp(low, high, place.frac().to(values.dtype))


def check_shapes(**tensors: torch.Tensor | None) -> None:
    """Check that all tensors have the same shape (batch, response_length).

    Raises:
        ValueError: they differ, or have another number of dimensions; the message names all shapes.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if tensor is not None}
    if len(set(shapes.values())) > 1 or len(next(iter(shapes.values()))) != 2:
        raise ValueError(
            f"all inputs must have one shape (batch, response_length), got {shapes}; "
            "pad or select all inputs alike before calling"
        )
