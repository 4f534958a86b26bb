"""Define shapings for data of another policy, which are the whole coefficient of A log p.

With ``algorithm=reinforce`` the loss of a token is ``-w A log p``, where w has no gradient: the REINFORCE form, of which every
method with a detached coefficient is a case. ``topr``, ``up_grpo``, ``vespo`` and ``m2po`` are such coefficients, so with a loss
that multiplies by the ratio r itself they would count r twice. p_old is the policy that the run takes for the old one; with
``algorithm.rollout_correction.bypass_mode=true`` it is that of the rollout engine.

tests/core/test_off_policy_shapings.py computes each of them once more from its formula.
"""

from __future__ import annotations

import math

import torch

from verl_trgrpo.core.shaping import register_shaping
from verl_trgrpo.core.tokens import MAX_LOG_RATIO

# Shapings that are the coefficient of A log p.
COEFFICIENTS = ("topr", "up_grpo", "vespo", "m2po")

# Bound of log W of a response in VESPO, that of TRL.
_SMALLEST_LOG_W = math.log(1e-8)


@register_shaping("topr", {"upper": "(0, inf)"})
def topr(
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    upper: float = 1.0,
) -> torch.Tensor:
    """Return TOPR's coefficient: 1 where A > 0, else min(W, ``upper``), W the ratio of the response (arXiv 2503.14286).

    W is the product of the response's ratios, as in ROLL (``use_topr_loss``); another port takes their geometric mean.
    """
    ratio = _log_w(log_prob, old_log_prob, response_mask).clamp(max=math.log(upper)).exp()
    return torch.where(advantages > 0, 1.0, ratio)


@register_shaping("up_grpo", {"low": "(0, 1)", "dual": "(1, inf)"})
def up_grpo(
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantages: torch.Tensor,
    *,
    low: float = 0.2,
    dual: float = 3.0,
) -> torch.Tensor:
    """Return UP-GRPO's coefficient: 1 where A > 0, else r within GRPO's clip, 0 outside it (arXiv 2607.06987, Eq. 15).

    Right tokens are set free, rare ones first: neither ratio nor clip holds them back. Wrong tokens keep GRPO's gradient,
    r where 1 - ``low`` <= r <= ``dual``. The bounds are those of veRL's pull request 7022, by the method's first author.
    """
    ratio = _log_ratios(log_prob, old_log_prob).exp()
    clipped = torch.where((ratio >= 1 - low) & (ratio <= dual), ratio, 0.0)
    return torch.where(advantages > 0, 1.0, clipped)


@register_shaping(
    "vespo", {"k_pos": "(0, inf)", "lambda_pos": "(0, inf)", "k_neg": "(0, inf)", "lambda_neg": "(0, inf)"}
)
def vespo(
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    k_pos: float = 2.0,
    lambda_pos: float = 3.0,
    k_neg: float = 3.0,
    lambda_neg: float = 2.0,
) -> torch.Tensor:
    """Return VESPO's coefficient ``W ** k * exp(lambda * (1 - W))``, W the ratio of the response (arXiv 2602.10693).

    k and lambda are ``k_pos`` and ``lambda_pos`` where A >= 0, else ``k_neg`` and ``lambda_neg``. Formula, constants and the
    bounds of log W, [log 1e-8, 20], are those of TRL (``get_gamma_weights``), read in Liger-Kernel 0.8.2.
    """
    log_w = _log_w(log_prob, old_log_prob, response_mask).clamp(_SMALLEST_LOG_W, MAX_LOG_RATIO)
    good = advantages >= 0
    k, strength = torch.where(good, k_pos, k_neg), torch.where(good, lambda_pos, lambda_neg)
    return (k * log_w + strength * (1 - log_w.exp())).exp()


@register_shaping("m2po", {"threshold": "(0, inf)"})
def m2po(
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    threshold: float = 0.04,
) -> torch.Tensor:
    """Return M2PO's coefficient: r, but 0 for the outliers of the micro-batch (arXiv 2510.01161, Algorithm 1).

    Among the tokens that the update moves further away, A > 0 and r > 1 or A < 0 and r < 1, those with the largest
    (log r)^2 are left out until the mean of the others' is at most ``threshold``. Read in Trinity-RFT's ``m2po`` loss, which
    follows the paper's final text; AReaL's masks among all tokens, within PPO's clip. The mean is that of the micro-batch, so
    results depend on its size.
    """
    log_ratio = _log_ratios(log_prob, old_log_prob)
    away = response_mask & (advantages * log_ratio > 0)
    moments = log_ratio.square().masked_fill(~away, torch.inf).flatten()
    ascending, order = moments.sort()
    counts = torch.arange(1, len(ascending) + 1, device=ascending.device)
    dropped = torch.zeros_like(away).flatten()
    dropped[order] = ascending.cumsum(0) / counts > threshold
    return log_ratio.exp().masked_fill(dropped.view_as(away) & away, 0.0)


def _log_ratios(log_prob: torch.Tensor, old_log_prob: torch.Tensor) -> torch.Tensor:
    """Return log r of each token, bounded as in veRL's losses."""
    return (log_prob - old_log_prob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _log_w(log_prob: torch.Tensor, old_log_prob: torch.Tensor, response_mask: torch.Tensor) -> torch.Tensor:
    """Return log W of each response, (batch, 1): the sum of log r over the tokens that the model generated."""
    return (_log_ratios(log_prob, old_log_prob) * response_mask).sum(-1, keepdim=True)
