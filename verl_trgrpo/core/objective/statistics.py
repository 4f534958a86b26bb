"""What the token weights did to a batch, as numbers that stay exact when micro-batches are pooled."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

# Tokens below this probability are the rare ones whose share of the gradient the method is about.
LOW_PROB = 0.25


class PooledStatistic(float):
    """A float that remembers the sums it was computed from, so that batches can be pooled without bias.

    Averaging the means of micro-batches over-counts tokens of short ones; adding the sums does not.

    Args:
        kind: ``ratio`` is sums[0] / sums[1]; ``std`` is the standard deviation of a quantity x from
            sums = (sum of x, sum of x squared, count). A ratio or deviation of nothing is 0.
        sums: the additive parts.
    """

    kind: str
    sums: tuple[float, ...]

    def __new__(cls, kind: str, sums: Iterable[float]) -> PooledStatistic:
        sums = tuple(sums)
        if kind == "ratio":
            value = sums[0] / sums[1] if sums[1] else 0.0
        elif kind == "std":
            total, total_square, count = sums
            value = math.sqrt(max(0.0, total_square / count - (total / count) ** 2)) if count else 0.0
        else:
            raise ValueError(f"kind={kind!r} is unknown; choose ratio or std")
        instance = super().__new__(cls, value)
        instance.kind, instance.sums = kind, sums
        return instance

    def __reduce__(self):
        return PooledStatistic, (self.kind, self.sums)

    @staticmethod
    def pool(parts: Iterable[PooledStatistic]) -> PooledStatistic:
        """The statistic of all parts' tokens together.

        Raises:
            ValueError: for no parts, or parts of different kinds.
        """
        parts = list(parts)
        kinds = {part.kind for part in parts}
        if len(kinds) != 1:
            raise ValueError(
                f"cannot pool {len(parts)} statistics of kinds {sorted(kinds)}; give at least one, all alike"
            )
        return PooledStatistic(
            kinds.pop(), [math.fsum(column) for column in zip(*(part.sums for part in parts), strict=True)]
        )


@torch.no_grad()
def regulation_metrics(
    probs: torch.Tensor,
    weights: torch.Tensor | None,
    advantages: torch.Tensor,
    valid: torch.Tensor,
    log_ratio: torch.Tensor,
    clipped: torch.Tensor,
    capped: torch.Tensor,
    silenced_uniform: torch.Tensor | None,
    bounds: tuple[float, float],
    capped_is_silent: bool,
) -> dict[str, float | PooledStatistic]:
    """The figures to report at every step, all over valid tokens; weights are those before normalisation.

    The gradient proxy of a token is |A| w (1 - p): its gradient norm at the logits lies between this and sqrt(2) times it.

    Args:
        probs: (batch, response_length) pi_theta in [0, 1], float.
        weights: (batch, response_length) shaped weights, or None for all 1.
        advantages: (batch, response_length) A.
        valid: (batch, response_length) bool, True for generated tokens.
        log_ratio: (batch, response_length) log r, 0 outside the mask.
        clipped: (batch, response_length) bool, tokens without gradient because r is past the clip range.
        capped: (batch, response_length) bool, tokens whose surrogate dual clip caps.
        silenced_uniform: (batch, response_length) bool, tokens that were clipped or capped if all weights were 1; None
            when those are the same tokens.
        bounds: (L, U) of the shaping.
        capped_is_silent: whether capped tokens get no gradient; the soft dual clip of ASPO leaves them theirs.

    Returns:
        ``pg_clipfrac``, ``ppo_kl``, ``pg_clipfrac_lower`` as veRL's vanilla loss reports them (plain floats), and, poolable:
        ``tr_weight_mean``, ``tr_weight_std``; ``tr_weight_at_lower``, ``tr_weight_at_upper``: shares of tokens with w = L
        and w = U; ``tr_grad_share_low_prob``: share of the summed proxy from tokens with p < 0.25, and
        ``tr_grad_share_low_prob_uniform`` the same with w = 1; ``tr_zero_grad_frac`` and ``tr_zero_grad_frac_uniform``: shares of
        tokens that clipping leaves without gradient, with the weights and with w = 1.
    """
    count = valid.count_nonzero()
    n_clipped, n_capped = (clipped & valid).count_nonzero(), (capped & valid).count_nonzero()
    silenced = n_clipped + n_capped if capped_is_silent else n_clipped
    cut_uniform = silenced if silenced_uniform is None else (silenced_uniform & valid).count_nonzero()
    sums = [count, n_clipped, n_capped, log_ratio.sum(), silenced, cut_uniform]
    sums += _gradient_shares(probs, weights, advantages, valid)
    sums += _weight_moments(weights, valid, count, bounds)
    # One transfer to the host for all of them: one for each would stall an accelerator a dozen times.
    host = torch.stack([x.double() for x in sums]).tolist()
    n, n_clip, n_cap, log_ratio_sum, cut, cut_uniform, g, g_low, wg, wg_low, s, s2, n_lower, n_upper = host
    return {
        "pg_clipfrac": n_clip / max(n, 1),
        "ppo_kl": -log_ratio_sum / max(n, 1),
        "pg_clipfrac_lower": n_cap / max(n, 1),
        "tr_weight_mean": PooledStatistic("ratio", (n + s, n)),
        "tr_weight_std": PooledStatistic("std", (s, s2, n)),
        "tr_weight_at_lower": PooledStatistic("ratio", (n_lower, n)),
        "tr_weight_at_upper": PooledStatistic("ratio", (n_upper, n)),
        "tr_grad_share_low_prob": PooledStatistic("ratio", (wg_low, wg)),
        "tr_grad_share_low_prob_uniform": PooledStatistic("ratio", (g_low, g)),
        "tr_zero_grad_frac": PooledStatistic("ratio", (cut, n)),
        "tr_zero_grad_frac_uniform": PooledStatistic("ratio", (cut_uniform, n)),
    }


def _gradient_shares(
    probs: torch.Tensor, weights: torch.Tensor | None, advantages: torch.Tensor, valid: torch.Tensor
) -> list[torch.Tensor]:
    """Sums of |A| (1 - p): all tokens, rare ones; and of |A| w (1 - p): all tokens, rare ones."""
    advantages = advantages.to(probs.dtype)
    proxy = torch.addcmul(advantages, advantages, probs, value=-1).abs_().masked_fill_(~valid, 0.0).flatten()
    low_proxy = proxy.masked_fill(probs.flatten() >= LOW_PROB, 0.0)
    unweighted = [proxy.sum(), low_proxy.sum()]
    if weights is None:
        return unweighted * 2
    # Outside the mask a weight may be NaN, which a product with 0 would let through.
    weights = weights.masked_fill(~valid, 0.0).flatten()
    return [*unweighted, torch.dot(proxy, weights), torch.dot(low_proxy, weights)]


def _weight_moments(
    weights: torch.Tensor | None, valid: torch.Tensor, count: torch.Tensor, bounds: tuple[float, float]
) -> list[torch.Tensor]:
    """Sums of w - 1 and (w - 1)^2, and how many weights sit at L and at U."""
    if weights is None:
        return [torch.zeros_like(count), torch.zeros_like(count), count, count]
    # Not sums of w: weights lie near 1, and their small spread would drown in rounding.
    shifted = (weights - 1).masked_fill_(~valid, 0.0).flatten()
    # Compared in the weights' own precision, in which the shaping clipped them.
    lower, upper = (weights.new_tensor(bound) for bound in bounds)
    at_lower, at_upper = ((weights <= lower) & valid), ((weights >= upper) & valid)
    return [shifted.sum(), torch.dot(shifted, shifted), at_lower.count_nonzero(), at_upper.count_nonzero()]
