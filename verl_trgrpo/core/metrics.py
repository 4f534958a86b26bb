"""What the token weights did to a batch, as numbers that stay exact when micro-batches are put together."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from verl_trgrpo.core.tokens import Tokens

# Tokens below this probability are the rare ones whose share of the gradient the method is about.
LOW_PROB = 0.25


class TokenStatistic(float):
    """A float that remembers the sums over tokens it was computed from, so that micro-batches can be merged exactly.

    Averaging the means of micro-batches over-counts tokens of short ones; adding the sums does not.

    Args:
        kind: ``ratio`` is sums[0] / sums[1]; ``std`` is the standard deviation of a quantity x from
            sums = (sum of x, sum of x squared, count). A ratio or deviation of nothing is 0.
        sums: the additive parts.
    """

    kind: str
    sums: tuple[float, ...]

    def __new__(cls, kind: str, sums: Iterable[float]) -> TokenStatistic:
        sums = tuple(sums)
        if kind == "ratio":
            value = sums[0] / sums[1] if sums[1] else 0.0
        else:
            total, total_square, count = sums
            value = math.sqrt(max(0.0, total_square / count - (total / count) ** 2)) if count else 0.0
        instance = super().__new__(cls, value)
        instance.kind, instance.sums = kind, sums
        return instance

    def __reduce__(self):
        return TokenStatistic, (self.kind, self.sums)

    @staticmethod
    def merge(parts: Iterable[TokenStatistic]) -> TokenStatistic:
        """Return the statistic of all parts' tokens together; one part at least, all of one kind."""
        parts = list(parts)
        return TokenStatistic(
            parts[0].kind, [math.fsum(column) for column in zip(*(part.sums for part in parts), strict=True)]
        )


@torch.no_grad()
def token_metrics(
    tokens: Tokens,
    weights: torch.Tensor,
    bounds: tuple[float, float],
    clipped: torch.Tensor,
    dual_clipped: torch.Tensor,
    zero_grad: torch.Tensor,
    zero_grad_uniform: torch.Tensor,
) -> dict[str, float | TokenStatistic]:
    """The figures to report at every step, all over valid tokens.

    The gradient proxy of a token is |A| w (1 - p): its gradient norm at the logits lies between this and sqrt(2) times it.

    Args:
        tokens: of the micro-batch.
        weights: (batch, response_length) weights before normalisation, 1 outside the mask.
        bounds: (L, U) of the shaping.
        clipped: (batch, response_length) bool, valid tokens whose ratio is past the clip range.
        dual_clipped: (batch, response_length) bool, valid tokens at the bound of dual clip.
        zero_grad: (batch, response_length) bool, valid tokens that clipping leaves without gradient.
        zero_grad_uniform: (batch, response_length) bool, the same if all weights were 1.

    Returns:
        ``pg_clipfrac``, ``ppo_kl``, ``pg_clipfrac_lower`` as veRL's vanilla loss reports them (plain floats), and as
        ``TokenStatistic``: ``tr_weight_mean``, ``tr_weight_std``; ``tr_weight_at_lower``, ``tr_weight_at_upper``:
        shares of tokens with w = L and w = U; ``tr_grad_share_low_prob``: share of the summed proxy from tokens with
        p < 0.25, and ``tr_grad_share_low_prob_uniform`` the same with w = 1; ``tr_zero_grad_frac`` and
        ``tr_zero_grad_frac_uniform``: shares of tokens that clipping leaves without gradient, with the weights and with
        w = 1.
    """
    # Outside the mask A and log r are 0, and w - 1, too.
    proxy = (1 - tokens.probs).mul_(tokens.advantages).abs_().flatten()
    # Not sums of w: weights lie near 1, and their small spread would drown in rounding.
    shifted = (weights - 1).flatten()
    lower, upper = (weights.new_tensor(bound) for bound in bounds)
    sums = [
        tokens.valid.count_nonzero(),
        tokens.log_ratio.detach().sum(),
        *(tokens_of.count_nonzero() for tokens_of in (clipped, dual_clipped, zero_grad, zero_grad_uniform)),
        proxy.sum(),
        torch.dot(proxy, shifted),
        proxy.masked_fill_(tokens.probs.flatten() >= LOW_PROB, 0.0).sum(),  # from here on that of rare tokens
        torch.dot(proxy, shifted),
        shifted.sum(),
        torch.dot(shifted, shifted),
        ((weights <= lower) & tokens.valid).count_nonzero(),
        ((weights >= upper) & tokens.valid).count_nonzero(),
    ]
    # One transfer from the device for all of them: one for each would stall an accelerator a dozen times.
    n, log_ratio, n_clipped, n_dual, n_zero, n_zero_uniform, g, dg, g_low, dg_low, s, s2, n_lower, n_upper = (
        torch.stack([x.double() for x in sums]).tolist()
    )
    return {
        "pg_clipfrac": n_clipped / max(n, 1),
        "ppo_kl": -log_ratio / max(n, 1),
        "pg_clipfrac_lower": n_dual / max(n, 1),
        "tr_weight_mean": TokenStatistic("ratio", (n + s, n)),
        "tr_weight_std": TokenStatistic("std", (s, s2, n)),
        "tr_weight_at_lower": TokenStatistic("ratio", (n_lower, n)),
        "tr_weight_at_upper": TokenStatistic("ratio", (n_upper, n)),
        "tr_grad_share_low_prob": TokenStatistic("ratio", (g_low + dg_low, g + dg)),
        "tr_grad_share_low_prob_uniform": TokenStatistic("ratio", (g_low, g)),
        "tr_zero_grad_frac": TokenStatistic("ratio", (n_zero, n)),
        "tr_zero_grad_frac_uniform": TokenStatistic("ratio", (n_zero_uniform, n)),
    }
