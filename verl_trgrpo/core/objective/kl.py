"""Weighted KL penalties towards the reference policy (``kl: scaled`` and ``kl: literal``)."""

from __future__ import annotations

import torch

from verl_trgrpo.core.objective.surrogate import log_ratio_limit


def weighted_kl(
    log_prob: torch.Tensor,
    ref_log_prob: torch.Tensor,
    weights: torch.Tensor | None,
    response_mask: torch.Tensor,
    kind: str,
) -> torch.Tensor:
    """Per-token KL penalty with token weights; with weights 1 both kinds are the k3 estimator (veRL's ``low_var_kl``).

    With rho = pi_ref / pi_theta: ``scaled`` is w * (rho - log rho - 1). ``literal`` is w rho - log(w rho) - 1, the form
    printed in arXiv 2511.00066; it is w - log w - 1 > 0 at pi_theta = pi_ref, and its gradient there is (1 - w) times
    grad log pi_theta: gradient descent raises pi_theta of tokens with w > 1 above the reference.

    log rho is clamped to [-20, 20] (11 in float16) and the estimate to [-10, 10], as the host clamps its own k3.

    Args:
        log_prob: (batch, response_length) log pi_theta, with gradient.
        ref_log_prob: (batch, response_length) log pi_ref, may be -inf.
        weights: (batch, response_length) no gradient, > 0 for ``literal``; None means 1.
        response_mask: (batch, response_length) 1 or True for generated tokens; anything may stand outside, NaN too.
        kind: ``scaled`` or ``literal``.

    Returns:
        (batch, response_length) penalties, 0 outside the mask.

    Raises:
        ValueError: for another kind.
    """
    if kind not in ("scaled", "literal"):
        raise ValueError(f"kl={kind!r} is not a weighted kind; choose scaled or literal (plain is the host's own)")
    valid = response_mask.bool()
    limit = log_ratio_limit(log_prob.dtype)
    ref_log_prob = ref_log_prob.clamp(min=torch.finfo(ref_log_prob.dtype).min)
    log_rho = torch.where(valid, ref_log_prob - log_prob, 0.0).clamp(min=-limit, max=limit)
    rho = torch.exp(log_rho)
    k3 = torch.clamp(rho - log_rho - 1, min=-10, max=10)
    if weights is None:
        return k3
    weights = torch.where(valid, weights, 1.0)
    if kind == "scaled":
        return weights * k3
    return torch.where(valid, torch.clamp(weights * rho - (torch.log(weights) + log_rho) - 1, min=-10, max=10), 0.0)
