"""Compute metrics of token weights, exact when micro-batches are merged, and of groups of responses."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from verl_trgrpo.core.tokens import Tokens

# Tokens below this probability are the rare ones whose share of the gradient the method is about.
LOW_PROB = 0.25


class TokenStatistic(float):
    """A float with the sums over tokens that it was computed from, so that micro-batches can be merged exactly.

    Averaging the means of micro-batches over-counts tokens of short ones; adding the sums does not.

    Attributes:
        kind: ``ratio`` is sums[0] / sums[1]; ``std`` is the standard deviation of a quantity x from
            sums = (sum of x, sum of x squared, count). Both are 0 if they divide by 0.
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
        """Return the statistic over the tokens of all parts; there is at least one, and all are of one kind."""
        parts = list(parts)
        return TokenStatistic(
            parts[0].kind, [math.fsum(column) for column in zip(*(part.sums for part in parts), strict=True)]
        )


class Clipping(NamedTuple):
    """Masks of valid tokens that a surrogate clips, all (batch, response_length) bool.

    Args:
        clipped: the ratio is past the clip range.
        dual_clipped: the ratio is at the bound of dual clip.
        zero_grad: clipping leaves the token without gradient.
        zero_grad_uniform: the same if all weights were 1.
    """

    clipped: torch.Tensor
    dual_clipped: torch.Tensor
    zero_grad: torch.Tensor
    zero_grad_uniform: torch.Tensor


@torch.no_grad()
def weight_sums(tokens: Tokens, weights: torch.Tensor, bounds: tuple[float, float]) -> list[torch.Tensor]:
    """Return the sums over valid tokens of which the metrics of weights are made, for ``token_metrics``.

    The gradient proxy of a token is |A| w (1 - p): its gradient norm at the logits is between this and sqrt(2) times it.

    Args:
        tokens: of the micro-batch.
        weights: (batch, response_length) weights before normalisation, 1 outside the mask.
        bounds: (L, U), smallest and largest weight of the shaping.
    """
    lower, upper = (weights.new_tensor(bound) for bound in bounds)
    # First, and one after the other: on a GPU a count copies its mask to 64-bit integers.
    counts = [
        tokens.valid.count_nonzero(),
        (weights <= lower).logical_and_(tokens.valid).count_nonzero(),
        (weights >= upper).logical_and_(tokens.valid).count_nonzero(),
    ]
    # Outside the mask A is 0, and w - 1, too. In place: each tensor more would count into the peak memory.
    proxy = tokens.probs.neg_().add_(1).mul_(tokens.advantages).abs_().flatten()
    # Not sums of w: weights are near 1, and their small spread would be lost in rounding.
    shifted = (weights - 1).flatten()
    sums = [proxy.sum(), torch.dot(proxy, shifted)]
    proxy.masked_fill_(tokens.log_prob.flatten() >= math.log(LOW_PROB), 0.0)  # leaves that of rare tokens
    sums += [proxy.sum(), torch.dot(proxy, shifted)]
    # About their mean: rounding in a sum of squares would give equal weights a spread.
    count = counts[0].double()
    mean = shifted.sum() / counts[0].clamp(min=1)
    deviations = shifted.sub_(mean).masked_fill_(~tokens.valid.flatten(), 0.0)
    mean, total, squares = mean.double(), deviations.sum().double(), torch.dot(deviations, deviations).double()
    return [*counts, *sums, total + count * mean, squares + mean * (2 * total + count * mean)]


@torch.no_grad()
def token_metrics(
    sums: Sequence[torch.Tensor], log_ratio: torch.Tensor, clipping: Clipping
) -> dict[str, float | TokenStatistic]:
    """Compute the metrics that ``PolicyLoss`` lists, over the valid tokens of a micro-batch.

    Args:
        sums: what ``weight_sums`` returns.
        log_ratio: (batch, response_length) log r, 0 outside the mask.
        clipping: masks of what the surrogate clipped.
    """
    more = [log_ratio.detach().sum(), *(mask.count_nonzero() for mask in clipping)]
    # One transfer from the device for all of them: one for each would stall an accelerator a dozen times.
    n, n_lower, n_upper, g, dg, g_low, dg_low, s, s2, total, n_clipped, n_dual, n_zero, n_zero_uniform = torch.stack(
        [x.double() for x in (*sums, *more)]
    ).tolist()
    return {
        "pg_clipfrac": n_clipped / max(n, 1),
        "ppo_kl": -total / max(n, 1),
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


_SHARES_OF_INFOS = {
    "critic/gold_unreadable_frac": "gold_unparseable",
    "critic/timed_out_frac": "timed_out",
    "critic/cut_off_frac": "cut_off",
    "critic/reward_echo": "restated",
}


def group_metrics(
    groups: Sequence[Any], rewards: Sequence[float], infos: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """Compute the share of groups with equal rewards, which give no gradient, and of responses without an answer or a verdict.

    Args:
        groups: (batch,) label of the group of each response.
        rewards: (batch,) reward of each response.
        infos: (batch,) other fields of each score; ``format_ok`` of 0 means that the reward found no answer,
            ``gold_unparseable`` that it could not read the ground truth, ``timed_out`` that it stopped at a limit, ``cut_off``
            that the response ended at its length limit, ``restated`` that the answer restates the question.

    Returns:
        ``critic/equal_groups_frac``, in [0, 1]; and, each in [0, 1] and present if all infos have its field,
        ``critic/no_answer_frac``, ``critic/gold_unreadable_frac``, ``critic/timed_out_frac``, ``critic/cut_off_frac`` and
        ``critic/reward_echo``; and
        ``critic/reward/NAME/mean``, the mean of every other field that is a number in all infos.
    """
    values = defaultdict(set)
    for group, reward in zip(groups, rewards, strict=True):
        values[group].add(float(reward))
    metrics = {}
    if values:
        # The advantages of a group with NaN are NaN: no gradient either. Each NaN is an element of its own in a set.
        useless = [len(found) == 1 or any(map(math.isnan, found)) for found in values.values()]
        metrics["critic/equal_groups_frac"] = sum(useless) / len(values)
    if infos and all("format_ok" in info for info in infos):
        metrics["critic/no_answer_frac"] = sum(not info["format_ok"] for info in infos) / len(infos)
    for name, field in _SHARES_OF_INFOS.items():
        if infos and all(field in info for info in infos):
            metrics[name] = sum(bool(info[field]) for info in infos) / len(infos)
    for field in infos[0].keys() - _SHARES_OF_INFOS.values() - {"format_ok"} if infos else ():
        numbers = [float(info[field]) for info in infos if isinstance(info.get(field), (int, float))]
        if len(numbers) == len(infos):
            metrics[f"critic/reward/{field}/mean"] = sum(numbers) / len(infos)
    return metrics
