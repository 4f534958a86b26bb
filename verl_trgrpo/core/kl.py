"""KL penalties towards the reference policy with token weights (``kl: scaled`` and ``kl: literal``)."""

from __future__ import annotations

import torch

from verl_trgrpo.core.tokens import MAX_LOG_RATIO, masked


def weighted_kl(
    log_prob: torch.Tensor,
    ref_log_prob: torch.Tensor,
    weights: torch.Tensor,
    response_mask: torch.Tensor,
    kind: str,
) -> torch.Tensor:
    """Per-token KL penalty with token weights; with weights 1 both kinds are the k3 estimator (veRL's ``low_var_kl``).

    With rho = pi_ref / pi_theta: ``scaled`` is w * (rho - log rho - 1). ``literal`` is w rho - log(w rho) - 1, the form
    printed in arXiv 2511.00066; it is w - log w - 1 > 0 at pi_theta = pi_ref, and its gradient there is (1 - w) times
    grad log pi_theta: gradient descent raises pi_theta of tokens with w > 1 above the reference.

    log rho is clamped to [-20, 20] and the estimate to [-10, 10], as veRL clamps its own k3.

    Args:
        log_prob: (batch, response_length) log pi_theta, with gradient.
        ref_log_prob: (batch, response_length) log pi_ref, may be -inf.
        weights: (batch, response_length) no gradient, > 0 for ``literal``.
        response_mask: (batch, response_length) 1 or True for generated tokens; anything may stand outside, NaN too.
        kind: ``scaled`` or ``literal``.

    Returns:
        (batch, response_length) penalties, 0 outside the mask.

    Raises:
        ValueError: for another kind.
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
