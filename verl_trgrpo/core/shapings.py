"""Define the built-in shapings. p is the probability of the sampled token, w the weight of its loss."""

from __future__ import annotations

import math

import torch

from verl_trgrpo.core.shaping import register_shaping

_SIGMOID = {"alpha": "(0, inf)", "tau": "(0, inf)", "mu": "[0, 1]", "lower": "[0, inf)", "upper": "[0, inf)"}

# The last steps of MurmurHash3, which spread every bit over all of them; as signed numbers.
_MIX = (-49064778989728563, -4265267296055464877)


@register_shaping("sigmoid", _SIGMOID)
def sigmoid(
    probs: torch.Tensor,
    *,
    alpha: float = 2.0,
    tau: float = 9.0,
    mu: float = 0.25,
    lower: float = 1.0,
    upper: float = 1.4,
) -> torch.Tensor:
    """Return TR-GRPO's weight ``clip(alpha * (sigmoid(tau * p) - mu), lower, upper)`` (arXiv 2511.00066).

    The published constants are the defaults: w is 1.0 up to p = 0.122 and 1.4 from p = 0.327. Secondary sources print
    ``p / tau``; with these constants that form is 1.0 everywhere, so here tau multiplies (an inverse temperature).
    """
    return torch.sigmoid(probs * tau).sub_(mu).mul_(alpha).clamp_(lower, upper)


@register_shaping("sigmoid_centered", _SIGMOID)
def sigmoid_centered(
    probs: torch.Tensor,
    *,
    alpha: float = 2.0,
    tau: float = 9.0,
    mu: float = 0.25,
    lower: float = 1.0,
    upper: float = 1.4,
) -> torch.Tensor:
    """Return ``clip(alpha * sigmoid(tau * (p - mu)), lower, upper)``, which crosses alpha / 2 (1 by default) at p = mu.

    The shape of the ``both_sigmoid`` option in the public code of arXiv 2505.12929 (slope 5, centre 0.4 there);
    the constants here are TR-GRPO's.
    """
    return torch.sigmoid((probs - mu).mul_(tau)).mul_(alpha).clamp_(lower, upper)


@register_shaping("linear", {"alpha": "(0, 1]"})
def linear(probs: torch.Tensor, *, alpha: float = 0.2) -> torch.Tensor:
    """Return ``alpha * p + (1 - alpha)``: Advantage Reweighting of arXiv 2505.12929 (alpha 0.2 alone, 0.3 with Lopti)."""
    return (probs * alpha).add_(1 - alpha)


@register_shaping("power", {"gamma": "(0, inf)", "lower": "[0, 1)"})
def power(probs: torch.Tensor, *, gamma: float = 0.5, lower: float = 0.1) -> torch.Tensor:
    """Return ``max(p ** gamma, lower)``, a smooth alternative of this project; a larger gamma damps rare tokens more."""
    return torch.pow(probs, gamma).clamp_(min=lower)


@register_shaping("threshold", {"eta": "(0, 1]", "lower": "[0, inf)", "upper": "[0, inf)"})
def threshold(probs: torch.Tensor, *, eta: float = 0.5, lower: float = 1.0, upper: float = 1.4) -> torch.Tensor:
    """Return ``upper`` from p = eta on, else ``lower``; eta 0.5 is the split of Lopti (arXiv 2505.12929).

    Lopti itself updates twice per batch, first with the tokens whose old probability is below eta, then with the others;
    in the authors' public code (github.com/zhyang2226/AR-Lopti, ``ray_trainer.py``) the advantages of the other tokens are
    0 in each pass, and old log-probabilities stay those before both. A loss or an estimator of veRL cannot do that: veRL
    computes all advantages of a batch once, makes one call of ``PPOTrainer._update_actor``, and does not tell the loss
    which pass it is in. Here both sets get different weights in one update.
    """
    return torch.full_like(probs, lower).masked_fill_(probs >= eta, upper)


@register_shaping("binary_entropy", {"lower": "[0, inf)", "upper": "[0, inf)"})
def binary_entropy(probs: torch.Tensor, *, lower: float = 1.0, upper: float = 1.4) -> torch.Tensor:
    """Return ``lower + (upper - lower) h(p) / log 2`` with h(p) = -p log p - (1 - p) log(1 - p): this project's own.

    h(p) is the largest lower bound of the policy's entropy at a position that the probability of the sampled token alone
    implies: a smooth weight for uncertain positions, in the spirit of arXiv 2506.01939, that does not need the entropy.
    """
    entropy = torch.special.entr(probs) + torch.special.entr(1 - probs)
    return entropy.mul_((upper - lower) / math.log(2)).add_(lower).clamp_(lower, upper)


@register_shaping("top_entropy", {"share": "(0, 1)"})
def top_entropy(entropy: torch.Tensor, response_mask: torch.Tensor, *, share: float = 0.2) -> torch.Tensor:
    """Return 1 for the ceil(share n) of the micro-batch's n tokens with the highest entropy, else 0 (arXiv 2506.01939).

    Ties with the last of them are kept. The threshold is that of the micro-batch, so results depend on its size. The loss
    of the kept tokens is divided by all tokens; ``normalize=token_mean`` divides by the kept ones.
    """
    candidates = entropy[response_mask]
    if not len(candidates):
        return torch.zeros_like(entropy)
    kept = math.ceil(share * len(candidates) - 1e-9)  # 0.1 of 30 is 3, although 0.1 * 30 is a little more
    return (entropy >= torch.topk(candidates, kept).values[-1]).to(entropy.dtype)


@register_shaping("stapo", {"max_prob": "(0, 1]", "max_entropy": "(0, inf)"})
def stapo(
    probs: torch.Tensor,
    entropy: torch.Tensor,
    advantages: torch.Tensor,
    *,
    max_prob: float = 0.01,
    max_entropy: float = 0.1,
) -> torch.Tensor:
    """Return 0 for tokens with p < max_prob, entropy < max_entropy and A > 0, else 1 (STAPO, arXiv 2602.15620).

    Such "spurious" tokens, about one in ten thousand, are improbable at a position where the policy was sure, and rewarded
    all the same. The three conditions, and dividing the loss by the tokens that stay (``normalize=token_mean``), are those
    of the abstract and public summaries; 0.01 is a summary's example. The bound of the entropy, in nats, is this
    project's: a summary takes a low percentile of the batch instead.
    """
    return 1 - ((probs < max_prob) & (entropy < max_entropy) & (advantages > 0)).to(probs.dtype)


@register_shaping("cppo", {"delta": "(0, inf)", "min_weight": "(0, 1]", "prefix_delta": "[0, inf)"})
def cppo(
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    delta: float = 0.2,
    min_weight: float = 0.8,
    prefix_delta: float = 0.02,
) -> torch.Tensor:
    """Return 0 for tokens outside CPPO's trust region, else 1 (arXiv 2606.10968); it shrinks as a response drifts.

    With D_t = |p - p_old| of the t-th of a response's T generated tokens, a weight v_t that falls linearly from 1 to
    ``min_weight``, Z_t = v_t D_t, and b the 0.9 quantile of D within [``prefix_delta``, 2 ``prefix_delta``], a token
    stays if A (r - 1) <= 0 (the update brings it back) or Z_t <= min(``delta``, ``delta`` + sum_{j<t} (b v_j - Z_j)).
    Formula and defaults are those of the authors' public code (github.com/Tencent-Hunyuan/UniRL,
    ``unirl/algorithms/cppo.py``, which names Eq. 8 to 11 of the paper), where p_old is that of the rollout engine.
    """
    mask = response_mask.to(log_prob.dtype)
    place = (mask.cumsum(-1) - 1).clamp(min=0)
    last = (mask.sum(-1, keepdim=True) - 1).clamp(min=1)
    weight = (1 - (1 - min_weight) * place / last) * mask
    moved = (log_prob.exp() - old_log_prob.exp()).abs() * mask
    drift = weight * moved
    budget = moved.masked_fill(~response_mask, torch.nan).nanquantile(0.9, -1, keepdim=True).nan_to_num()
    slack = budget.clamp(prefix_delta, 2 * prefix_delta) * weight - drift
    bound = (delta + slack.cumsum(-1) - slack).clamp(max=delta)
    brought_back = advantages * (log_prob - old_log_prob) <= 0
    return (brought_back | (drift <= bound)).to(log_prob.dtype)


@register_shaping("random_subset", {"share": "(0, 1)"})
def random_subset(
    old_log_prob: torch.Tensor, positions: torch.Tensor, *, share: float = 0.5, seed: int = 0
) -> torch.Tensor:
    """Return 1 for a random ``share`` of the tokens, else 0: a control for every method that selects tokens.

    In the manner of S-GRPO (arXiv 2504.20834, of which the abstract was read), which trains on a random subset. The draw is
    a function of position, old log-probability and ``seed``: the same however a batch is split, and in every pass over it,
    without the state of a generator. (Tokens of old probability 1 at one position are drawn together; their gradient is 0.)
    """
    bits = (
        old_log_prob.double().contiguous().view(torch.int64)
        + (positions + 1) * 0x9E3779B97F4A7C1
        + (seed * 0x2545F4914F6CDD1 + 2**63) % 2**64
        - 2**63
    )
    for factor in _MIX:
        bits = (bits ^ (bits >> 33)) * factor
    noise = ((bits ^ (bits >> 33)) & (2**53 - 1)).double() / 2**53
    return (noise < share).to(old_log_prob.dtype)


@register_shaping("uniform", constant=True)
def uniform(probs: torch.Tensor) -> torch.Tensor:
    """Return 1 for every token: plain GRPO, the baseline of every comparison."""
    return torch.ones_like(probs)
