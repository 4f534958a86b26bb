"""Define the built-in shapings. p is the probability of the sampled token, w the weight of its loss.

tests/core/test_shapings.py computes each of them once more from its formula.
"""

from __future__ import annotations

import math

import torch

from verl_trgrpo.core.shaping import register_shaping
from verl_trgrpo.core.tokens import MAX_LOG_RATIO, quantile

_SIGMOID = {"alpha": "(0, inf)", "tau": "(0, inf)", "mu": "[0, 1]", "lower": "[0, inf)", "upper": "[0, inf)"}

# Guard of the division by the entropy, that of the ports of RSI-S.
_SMALLEST_ENTROPY = 1e-6
# Tokens whose discounted sums one matrix product computes.
_BLOCK = 64

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

    The defaults are the constants of a public re-implementation (github.com/Wodlfvllf/grpo-composer at 1574679,
    ``core/clipping/weighted_trust.py``): w is 1.0 up to p = 0.122 and 1.4 from p = 0.327. It and its copies print
    ``p / tau``, which is 1.0 everywhere, so here tau multiplies (an inverse temperature). The paper's method section was not
    seen; ``sigmoid_centered`` is the other form that these constants allow.
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
    """Return ``clip(alpha * sigmoid(tau * (p - mu)), lower, upper)``, which is alpha / 2 (1 by default) at p = mu.

    The other reading of TR-GRPO's weight, with the same constants: w is 1.0 up to p = 0.25 and 1.4 from p = 0.344. It has the
    shape of the ``both_sigmoid`` option in the public code of arXiv 2505.12929 (slope 5, centre 0.4 there).
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

    Lopti itself updates twice per batch, with one set and then with the other (``algorithm=lopti``,
    :class:`~verl_trgrpo.core.LoptiOptions`); here both get different weights in one update.
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

    Ties with the last of them are kept. The threshold is that of the micro-batch, so results depend on its size. As in the
    paper's formula, the loss of the kept tokens is divided by all tokens; ``normalize=token_mean`` (``algorithm=top_entropy``)
    divides by the kept ones, as the authors' code does.
    """
    return _top(entropy, response_mask, share).to(entropy.dtype)


@register_shaping("stapo", {"max_prob": "(0, 1]", "entropy_quantile": "(0, 1]"})
def stapo(
    probs: torch.Tensor,
    entropy: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    max_prob: float = 0.002,
    entropy_quantile: float = 0.8,
) -> torch.Tensor:
    """Return 0 where p < max_prob, the entropy is below its quantile and A > 0, else 1 (STAPO, arXiv 2602.15620).

    Such "spurious" tokens are improbable at a position where the policy was sure, and rewarded all the same. Rule, 0.002, the
    quantile 0.8 and dividing the loss by the tokens that stay (``normalize=token_mean``) are those of public readings of v1 of
    the paper (Algorithm 1, Section 5.1; Section 5.3 calls the same bound "the bottom 80 %"). It has five versions, of which v4
    and v5 were not seen; a summary by the authors' laboratory has 0.01 and the quantile 0.05. There the quantile is that of the
    mini-batch, here that of the micro-batch, so results depend on its size.
    """
    bound = quantile(entropy.reshape(1, -1), response_mask.reshape(1, -1), entropy_quantile)
    return 1 - ((probs < max_prob) & (entropy < bound) & (advantages > 0)).to(probs.dtype)


@register_shaping("cppo", {"delta": "(0, inf)", "min_weight": "(0, 1]", "prefix_delta": "[0, inf)"})
def cppo(
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    delta: float = 0.15,
    min_weight: float = 0.8,
    prefix_delta: float = 0.02,
) -> torch.Tensor:
    """Return 0 for tokens outside CPPO's trust region, else 1 (arXiv 2606.10968); it shrinks as a response drifts.

    With D_t = |p - p_old| of the t-th of a response's T generated tokens, a weight v_t that falls linearly from 1 to
    ``min_weight``, Z_t = v_t D_t, and b the 0.9 quantile of D within [``prefix_delta``, 2 ``prefix_delta``], a token
    stays if A (r - 1) <= 0 (the update brings it back) or Z_t <= min(``delta``, ``delta`` + sum_{j<t} (b v_j - Z_j)).
    Formula and defaults are those of the authors' public code (github.com/Tencent-Hunyuan/UniRL at e1211ee,
    ``unirl/algorithms/cppo.py``, which names Eq. 8 to 11 of the paper), where p_old is that of the rollout engine; ``delta`` is
    its value for dense models, 0.2 that for a mixture of experts, which its class has by default.
    """
    mask = response_mask.to(log_prob.dtype)
    place = (mask.cumsum(-1) - 1).clamp(min=0)
    last = (mask.sum(-1, keepdim=True) - 1).clamp(min=1)
    weight = (1 - (1 - min_weight) * place / last) * mask
    moved = (log_prob.exp() - old_log_prob.exp()).abs() * mask
    drift = weight * moved
    budget = quantile(moved, response_mask, 0.9).nan_to_num()
    slack = budget.clamp(prefix_delta, 2 * prefix_delta) * weight - drift
    bound = (delta + slack.cumsum(-1) - slack).clamp(max=delta)
    brought_back = advantages * (log_prob - old_log_prob) <= 0
    return (brought_back | (drift <= bound)).to(log_prob.dtype)


@register_shaping("taco", {"alpha": "(0, inf)", "strength": "(0, 1]"})
def taco(
    log_prob: torch.Tensor,
    entropy: torch.Tensor,
    advantages: torch.Tensor,
    *,
    alpha: float = 0.01,
    strength: float = 0.9,
) -> torch.Tensor:
    """Return TACO's weight, which lowers the credit of tokens from the tail where A > 0 (arXiv 2607.07976).

    With the tail risk r = -log p - H + log alpha of a token, H the entropy at its position, the weight is
    ``1 - strength * (1 - exp(-r))`` where r > 0 and A > 0, else 1: a soft form of ``stapo``. Read in the authors' code
    (github.com/xiuyilou/TACO at 7a2f458): README, ``compute_taco_token_advantages`` in ``verl/trainer/ppo/core_algos.py``,
    and ``run.sh``, which also sets the clip 0.2 / 0.28 and the dual clip 10. As there, p and H are those of the current
    policy. Of the paper the abstract was read.
    """
    risk = (math.log(alpha) - log_prob - entropy).clamp(min=0)
    return torch.where(advantages > 0, 1 - strength * (1 - torch.exp(-risk)), 1.0)


@register_shaping("rsi", {"lower": "[0, inf)", "upper": "(0, inf]"})
def rsi(log_prob: torch.Tensor, entropy: torch.Tensor, *, lower: float = 0.1, upper: float = 3.0) -> torch.Tensor:
    """Return 1 where the relative surprisal index -log p / H is in [lower, upper], else 0 (RSI-S, arXiv 2606.31575).

    It is about 1 for a token as surprising as the position leads one to expect; a redundant token is below the interval, one
    from the tail above it. Read in three public ports, which agree in the formula and add 1e-6 to H (so a token of p = 1 has
    the index 0): ``openrlhf/models/token_surprisal_filter.py`` of github.com/smellslikeml/OpenRLHF, one for open-instruct,
    and a stand-alone one, from which the interval 0.1 to 3 is. Of the paper the abstract was read, not the interval.
    The loss of the kept tokens is divided by all tokens; ``normalize=token_mean`` divides by the kept ones.
    """
    index = -log_prob / (entropy + _SMALLEST_ENTROPY)
    return ((index >= lower) & (index <= upper)).to(log_prob.dtype)


@register_shaping("ipo_mask", {"eps": "(0, 1)"})
def ipo_mask(probs: torch.Tensor, old_probs: torch.Tensor, *, eps: float = 0.3) -> torch.Tensor:
    """Return 1 where |p - p_old| <= eps, else 0: the trust region of prime-rl's IPO, whatever the sign of A.

    Read in github.com/PrimeIntellect-ai/prime-rl: ``ipo_loss_fn`` in its ``trainer/rl/loss.py`` and pull request 3418, which
    made it the default instead of DPPO, with eps 0.1 and a KL term of 0.001 (log r)^2; since pull request 3586 the default is
    eps 0.3 without that term. There p_old is that of the rollout engine, the ratio is not clipped (``algorithm=ipo_mask``),
    and masked tokens count in the divisor of the loss.
    """
    return ((probs - old_probs).abs() <= eps).to(probs.dtype)


@register_shaping(
    "fipo",
    {
        "half_life": "(0, inf)",
        "lower": "[0, inf)",
        "upper": "(0, inf)",
        "max_ratio": "(1, inf]",
        "safe_ratio": "(0, inf]",
    },
)
def fipo(
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    half_life: float = 32.0,
    lower: float = 1.0,
    upper: float = 1.2,
    max_ratio: float = 10.0,
    safe_ratio: float = 4.0,
) -> torch.Tensor:
    """Return FIPO's weight ``clip(exp(F_t), lower, upper)``, F_t the discounted future KL (arXiv 2603.19835).

    F_t is the sum over the response's generated tokens k >= t of ``2^(-(k - t) / half_life) (log p_k - log p_old_k)``, so it
    does not depend on micro-batches; tokens with a ratio above ``max_ratio`` are left out of the sums. Where A < 0 and the
    ratio is above ``safe_ratio``, the weight is limited to [0.8, 1]. On-policy all weights are 1. Read in ms-swift
    (``compute_fipo_influence``, ``FIPO.md``, pull request 9328), whose defaults these are, except ``max_ratio``: there none,
    with 10 named as the value of the authors' script for 32B; slime's pull request 1801 and TRL's 5434 describe the same
    formula. The authors' code (github.com/qwenpilot/FIPO) and the paper were not seen.
    """
    log_ratio = (log_prob - old_log_prob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    counted = response_mask & (log_ratio <= math.log(max_ratio))
    weights = _discounted_future_sums(log_ratio * counted, 2 ** (-1 / half_life)).exp().clamp(lower, upper)
    unsafe = (advantages < 0) & (log_ratio > math.log(safe_ratio))
    return torch.where(unsafe, weights.clamp(0.8, 1.0), weights)


@register_shaping(
    "stare", {"share": "(0, 1]", "positive": "[1, inf)", "negative": "(0, 1]", "target_entropy": "(0, inf]"}
)
def stare(
    log_prob: torch.Tensor,
    entropy: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    share: float = 0.1,
    positive: float = 1.1,
    negative: float = 1.0,
    target_entropy: float = 0.3,
) -> torch.Tensor:
    """Return STARE's weights, which hold the entropy up (arXiv 2606.19236): ``positive`` or ``negative`` for rare tokens.

    While the mean entropy is below ``target_entropy`` (nats), the ``share`` of tokens with the highest -log p among those with
    A > 0 weighs ``positive``, that among those with A < 0 ``negative``, every other 1. Read in the authors' code
    (github.com/hp-luo/STARE at bffb9e7): ``STAREController`` and ``compute_stare_token_weights`` in
    ``verl/trainer/ppo/core_algos.py``, and the script for Qwen2.5-Math-7B, which also sets the clip 0.2 / 0.28 and the dual
    clip 10. The defaults are its variant O1; ``negative=0.9`` is C2. Its schedule of adaptive weights is not here. Of the
    paper the abstract was read.

    The shares are those of the micro-batch, as there, with ties kept. The mean entropy is that of the micro-batch, too, where
    theirs is that of the whole batch before the update: near the target, micro-batches decide one by one.
    """
    low = entropy.sum() < target_entropy * response_mask.sum()
    rare = low & _top(-log_prob, (advantages > 0) & response_mask, share)
    rare_and_wrong = low & _top(-log_prob, (advantages < 0) & response_mask, share)
    return torch.ones_like(log_prob).masked_fill_(rare, positive).masked_fill_(rare_and_wrong, negative)


@register_shaping("gtpo", {"beta": "(0, inf)"})
def gtpo(entropy: torch.Tensor, response_mask: torch.Tensor, *, beta: float = 0.1) -> torch.Tensor:
    """Return ``max(0, 1 + beta (H / mean H - 1))``: more weight where the policy is uncertain, after GTPO (arXiv 2508.04349).

    This is the simplified form of a public port (github.com/teilomillet/textpolicy at e88fc30, ``apply_entropy_weighting`` in
    ``textpolicy/algorithms/grpo.py``), with its default. The paper, whose abstract was read, adds to the reward of a token
    its share of the entropies of the group's right responses at the same position (for wrong ones, of the inverse
    entropies), which needs whole groups; the port says so and has that form, too.

    The mean is that of the micro-batch (in the port, of the batch), so results depend on its size. Without any entropy all
    weights are 1.
    """
    mean = entropy.sum() / response_mask.sum().clamp(min=1)
    relative = torch.where(mean == 0, 1.0, entropy / mean)
    return (1 + beta * (relative - 1)).clamp(min=0)


@register_shaping("random_subset", {"share": "(0, 1)"})
def random_subset(
    old_log_prob: torch.Tensor, positions: torch.Tensor, *, share: float = 0.5, seed: int = 0
) -> torch.Tensor:
    """Return 1 for a random ``share`` of the tokens, else 0: a control for every method that selects tokens.

    In the manner of S-GRPO (arXiv 2504.20834, of which the abstract was read), which trains on a random subset. The draw is
    a function of position, old log-probability and ``seed``: the same however a batch is split, and in every pass over it,
    without the state of a generator. (Tokens of old probability 1 at one position are drawn together; their gradient is 0.)

    Raises:
        ValueError: the seed is not an integer.
    """
    if type(seed) is not int:
        raise ValueError(f"shaping 'random_subset': seed={seed!r} is not an integer; give one, such as 0")
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


def _top(values: torch.Tensor, candidates: torch.Tensor, share: float) -> torch.Tensor:
    """Return True for the ceil(share n) of the n `candidates` with the highest values, and for ties with the last of them."""
    # The number of candidates stays on the device: as many are ranked as it would be if all values were.
    most = min(math.ceil(share * values.numel()) + 1, values.numel())
    ranked = values.masked_fill(~candidates, -torch.inf).flatten().topk(most).values
    kept = torch.ceil(share * candidates.sum().double() - 1e-9)  # 0.1 of 30 is 3, although 0.1 * 30 is a little more
    return candidates & (values >= ranked[(kept.long() - 1).clamp(min=0)[None]])


def _discounted_future_sums(x: torch.Tensor, discount: float) -> torch.Tensor:
    """Return the sums over k >= t of discount^(k - t) x_k, in the shape (batch, length) of `x`.

    One matrix product sums all blocks; the sums of whole blocks are those of a sequence as long as there are blocks.
    """
    places = torch.arange(_BLOCK, device=x.device, dtype=x.dtype)
    distance = places[:, None] - places  # k - t
    decay = torch.where(distance >= 0, discount ** distance.clamp(min=0), 0.0)
    length = x.shape[1]
    if length <= _BLOCK:
        return x @ decay[:length, :length]
    blocks = torch.nn.functional.pad(x, (0, -length % _BLOCK)).unflatten(1, (-1, _BLOCK))
    sums = blocks @ decay
    following = _discounted_future_sums(sums[..., 0], discount**_BLOCK)[:, 1:]
    sums[:, :-1] += following[..., None] * discount ** (_BLOCK - places)
    return sums.flatten(1)[:, :length]
