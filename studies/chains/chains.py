"""Train policies over chains of tokens whose accuracy can be computed, many seeds in one batch.

A prompt is three digits a, b and c. A chain has twelve tokens: at `FIRST` the policy decides r, which should be a + b, at `LAST`
the answer, which should be r + c (modulo `DIGITS`); the reward is 1 if both are right. The other tokens have no
influence: `fillers` of them can be chosen in four equally right ways (of the same vocabulary, so that their chance disturbs the
decisions), the rest are nearly certain.

The policy is a network with one hidden layer, so that tokens share parameters and what one of them learns disturbs the others.
It is fitted to a start in which the right r has a given probability, and most of the rest goes to one habitual mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from verl_trgrpo.core import ClipRange, TokenWeighting, compute_policy_loss, group_relative_advantages, make_shaping

DIGITS = 6
WORDS = 8
VOCABULARY = DIGITS + WORDS
LENGTH = 12
FIRST, LAST = 5, LENGTH - 1
# Every second one, then those between: few fillers are spread over the chain.
ORDINARY = [position for position in (*range(0, LENGTH, 2), *range(1, LENGTH, 2)) if position not in (FIRST, LAST)]
WORDING = (0.55, 0.25, 0.15, 0.05)
CERTAIN = 0.99
# Probabilities of the right answer given r, and of its habitual mistake, at the start.
ANSWER = 0.6
HABIT = 0.75
HIDDEN = 64
PROMPTS = DIGITS**3
HELD_OUT = PROMPTS // 3
# Contexts of a prompt: one for each position before the answer, and one for the answer after each r.
CONTEXTS = LAST + DIGITS


@dataclass(frozen=True)
class Chain:
    """One kind of chain.

    Args:
        fillers: positions, 0 to 10, at which four tokens are equally right, so that rare ones are chance wording.
        right: probability of the right r at the start, in (0, 1); where it is small, the rare token is the discovery.
    """

    fillers: int
    right: float


@dataclass(frozen=True)
class Training:
    """One way to train.

    Args:
        optimizer: adam or sgd, without momentum.
        passes: over each batch; with more than 1 most updates are off-policy.
        steps: batches.
        prompts: in a batch.
        samples: responses to each prompt, a group.
        mini_prompts: prompts in an update.
        decay: whether the learning rate falls linearly, to 0 after the last step.
        clip_high: the ratio is clipped above 1 + clip_high.
        cispo: whether the clipped ratio is a constant factor of the gradient (CISPO, arXiv 2506.13585), without a lower bound,
            so that no token loses its gradient.
    """

    optimizer: str
    passes: int
    steps: int = 40
    prompts: int = 8
    samples: int = 8
    mini_prompts: int = 4
    decay: bool = False
    clip_high: float = 0.2
    cispo: bool = False


# Weights: shaping, its parameters, and what is done to the weights of a mini-batch afterwards.
ARMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "grpo": ("uniform", {}, ""),
    "tr_grpo": ("sigmoid", {}, ""),
    "tr_grpo_token_mean": ("sigmoid", {}, "mean"),
    "tr_grpo_reverse": ("sigmoid", {"reverse": True}, ""),
    "tr_grpo_shuffled": ("sigmoid", {}, "shuffle"),
    "advantage_reweighting": ("linear", {}, ""),
    "tr_grpo_centered": ("sigmoid_centered", {}, ""),
    "power": ("power", {}, ""),
    "power_reverse": ("power", {"reverse": True}, ""),
}

Parameters = list[torch.Tensor]


class SeedWeighting(TokenWeighting):
    """Weigh mini-batches of many seeds, one in each row: what is done to the weights is done row by row."""

    then: str = ""
    generator: torch.Generator

    def normalized(self, weights: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        """Return `weights` (seeds, tokens) as they are, divided by each row's mean, or shuffled within each row."""
        if self.then == "mean":
            return weights / weights.mean(-1, keepdim=True)
        if self.then == "shuffle":
            return weights.gather(-1, torch.rand(weights.shape, generator=self.generator).argsort(-1))
        return weights


def arm_weighting(arm: str, seed: int = 0) -> SeedWeighting:
    """Build the weighting of an arm of `ARMS`; `seed` is that of shuffling."""
    shaping, parameters, then = ARMS[arm]
    weighting = SeedWeighting(shaping=make_shaping(shaping, **parameters))
    weighting.then, weighting.generator = then, torch.Generator().manual_seed(seed)
    return weighting


def prompt_digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a, b and c of all prompts."""
    numbers = torch.arange(PROMPTS)
    return numbers // DIGITS**2, numbers // DIGITS % DIGITS, numbers % DIGITS


def _decision(right: torch.Tensor, probability: float) -> torch.Tensor:
    """Return distributions over the vocabulary with a right digit, a habitual mistake one above it, and rare others."""
    rest = 1 - probability
    found = torch.full((*right.shape, VOCABULARY), 0.0)
    found[..., :DIGITS] = rest * (1 - HABIT) / (DIGITS - 2)
    found.scatter_(-1, right[..., None], probability)
    return found.scatter_(-1, (right[..., None] + 1) % DIGITS, rest * HABIT)


def start_distribution(chain: Chain) -> torch.Tensor:
    """Return what the start is fitted to: (prompts, contexts, vocabulary)."""
    a, b, c = prompt_digits()
    target = torch.full((PROMPTS, CONTEXTS, VOCABULARY), (1 - CERTAIN) / (VOCABULARY - 1))
    for place, position in enumerate(ORDINARY):
        if place < chain.fillers:
            target[:, position] = 0.0
            for shift, probability in enumerate(WORDING):
                target[:, position, (position + shift) % DIGITS] = probability
        else:
            target[:, position, DIGITS + position % WORDS] = CERTAIN
    target[:, FIRST] = _decision((a + b) % DIGITS, chain.right)
    target[:, LAST:] = _decision((torch.arange(DIGITS) + c[:, None]) % DIGITS, ANSWER)
    return target


def policy_logits(parameters: Parameters, prompts: torch.Tensor) -> torch.Tensor:
    """Return logits of all contexts of prompts (seeds, n): (seeds, n, contexts, vocabulary).

    The inputs of the network are one-hot: a and b before the answer, r and c for the answer, and the position. So the first layer
    is a sum of rows.
    """
    first, shift, second, bias = parameters
    a, b, c, r, position = first.split([DIGITS] * 4 + [LENGTH], dim=1)
    digits = [torch.eye(DIGITS)[digit[prompts]] for digit in prompt_digits()]
    position = (position + shift)[:, None]
    before = (torch.bmm(digits[0], a) + torch.bmm(digits[1], b))[:, :, None] + position[:, :, :LAST]
    after = torch.bmm(digits[2], c)[:, :, None] + (r[:, None] + position[:, :, LAST:])
    parts = (
        torch.baddbmm(bias, part.relu_().flatten(1, 2), second).unflatten(1, part.shape[1:3])
        for part in (before, after)
    )
    return torch.cat([*parts], 2)


def start_policies(chain: Chain, seeds: int, seed: int, steps: int = 400) -> Parameters:
    """Fit `seeds` networks to the start distribution; every call with one `seed` gives the same."""
    generator = torch.Generator().manual_seed(seed)
    target, features = start_distribution(chain), 4 * DIGITS + LENGTH

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(seeds, *shape, generator=generator)

    parameters = [
        normal(features, HIDDEN) * 0.5, torch.zeros(seeds, 1, HIDDEN),
        normal(HIDDEN, VOCABULARY) * 0.5 * HIDDEN**-0.5, torch.zeros(seeds, 1, VOCABULARY),
    ]  # fmt: skip
    for parameter in parameters:
        parameter.requires_grad_()
    weight = torch.ones(CONTEXTS)
    weight[FIRST] = DIGITS  # as much as all contexts of the answer
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    for _ in range(steps):
        some = torch.randperm(PROMPTS, generator=generator)[: PROMPTS // 9]
        log_probs = policy_logits(parameters, some.expand(seeds, -1)).log_softmax(-1)
        losses = -(target[some] * log_probs).sum(-1)
        loss = (losses * weight).mean((-1, -2)).sum()  # of independent seeds
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return [parameter.detach() for parameter in parameters]


def split_prompts(seeds: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the numbers of the prompts to train on and of those held out, (seeds, prompts) each.

    Held-out prompts are new combinations (a, b, c): nearly all of their pairs (a, b) and (r, c) are in train prompts too, so
    both decisions have been trained.
    """
    order = torch.rand(seeds, PROMPTS, generator=torch.Generator().manual_seed(seed)).argsort(-1)
    return order[:, HELD_OUT:], order[:, :HELD_OUT]


def split_pairs(seeds: int, seed: int) -> tuple[torch.Tensor, ...]:
    """Return prompts to train on, and those of which the first decision, the answer, or both have a context that is not trained.

    A prompt's contexts are its pair (a, b) and its pair (r, c) with the right r. For each r two of six pairs (a, b) and two of
    six c are never trained: 96 train prompts, 48, 48 and 24 others for each seed, (seeds, prompts) each.
    """
    generator = torch.Generator().manual_seed(seed)
    new_first, new_answer = (
        torch.rand(seeds, DIGITS, DIGITS, generator=generator).argsort(-1) < DIGITS // 3 for _ in range(2)
    )
    a, b, c = prompt_digits()
    r = (a + b) % DIGITS
    group = new_first[:, r, a].int() + 2 * new_answer[:, r, c].int()
    return group.argsort(stable=True, dim=-1).split([96, 48, 48, 24], -1)


# How prompts are split, and the names of the parts, of which the first is trained on.
SPLITS: dict[str, tuple[Callable[[int, int], tuple[torch.Tensor, ...]], tuple[str, ...]]] = {
    "combinations": (split_prompts, ("train", "held_out")),
    "pairs": (split_pairs, ("train", "new_first", "new_answer", "new_both")),
}


def exact_accuracy(parameters: Parameters, prompts: torch.Tensor) -> torch.Tensor:
    """Return the probability that both decisions are right for each seed, a mean over its `prompts` (seeds, n)."""
    return right_probs(parameters).gather(-1, prompts).mean(-1)


def right_probs(parameters: Parameters) -> torch.Tensor:
    """Return the probability that both decisions are right for each prompt, (seeds, prompts).

    The first depends on a and b alone, the answer on r and c: 72 contexts tell all.
    """
    first, shift, second, bias = parameters
    a, b, c, r, position = first.split([DIGITS] * 4 + [LENGTH], dim=1)
    position = position + shift
    decide = (a[:, :, None] + b[:, None]).flatten(1, 2) + position[:, FIRST, None]
    answer = (r[:, :, None] + c[:, None]).flatten(1, 2) + position[:, LAST, None]
    probs = torch.baddbmm(bias, torch.cat([decide, answer], 1).relu(), second).softmax(-1)
    number = torch.arange(DIGITS**2)
    right = probs.gather(
        -1, ((number // DIGITS + number % DIGITS) % DIGITS).repeat(2).expand(len(first), -1)[..., None]
    )
    decided, answered = right[..., 0].split(DIGITS**2, dim=1)
    a, b, c = prompt_digits()
    return decided[:, a * DIGITS + b] * answered[:, (a + b) % DIGITS * DIGITS + c]


@dataclass
class Batch:
    """Responses of many seeds, by prompt and sample.

    Args:
        prompts: (seeds, prompts) numbers.
        contexts: (seeds, prompts, samples, tokens) numbers of the contexts that tokens were sampled from, of a `HiddenLayer`.
        tokens: (seeds, prompts, samples, tokens).
        log_probs: of the tokens under the policy that sampled them.
        advantages: of the tokens.
        rewards: (seeds, prompts, samples).
    """

    prompts: torch.Tensor
    contexts: torch.Tensor
    tokens: torch.Tensor
    log_probs: torch.Tensor
    advantages: torch.Tensor
    rewards: torch.Tensor

    def part(self, some: slice) -> Batch:
        """Return the responses to some of the prompts."""
        return Batch(*(tensor[:, some] for tensor in vars(self).values()))


def token_log_probs(parameters: Parameters, batch: Batch) -> torch.Tensor:
    """Return log-probabilities of the tokens, (seeds, prompts, samples, tokens); contexts are shared within a group."""
    return _chosen(policy_logits(parameters, batch.prompts).log_softmax(-1), batch.contexts, batch.tokens)


class Network(Protocol):
    """A kind of policy: how it samples, and how it computes what a loss needs."""

    def sample(self, parameters: Parameters, prompts: torch.Tensor, samples: int, generator: torch.Generator) -> Batch:
        """Sample responses to prompts (seeds, n)."""

    def tokens(self, parameters: Parameters, batch: Batch, entropy: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return log-probabilities of the tokens and, if asked for, entropies without gradient where they were chosen."""


class HiddenLayer:
    """The policy of this module."""

    def sample(self, parameters: Parameters, prompts: torch.Tensor, samples: int, generator: torch.Generator) -> Batch:
        """Sample responses to prompts (seeds, n)."""
        return sample_batch(parameters, prompts, samples, generator)

    def tokens(self, parameters: Parameters, batch: Batch, entropy: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return log-probabilities of the tokens and, if asked for, entropies without gradient where they were chosen."""
        log_probs = policy_logits(parameters, batch.prompts).log_softmax(-1)
        found = _chosen(log_probs, batch.contexts, batch.tokens)
        if not entropy:
            return found, None
        every = entropies(log_probs.detach())
        return found, every.gather(-1, batch.contexts.flatten(2)).view_as(found)


HIDDEN_LAYER = HiddenLayer()


def entropies(log_probs: torch.Tensor) -> torch.Tensor:
    """Return the entropy of distributions over the last dimension, in nats."""
    return -(log_probs.exp() * log_probs).sum(-1)


def _chosen(log_probs: torch.Tensor, contexts: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return log_probs.flatten(2).gather(-1, (contexts * VOCABULARY + tokens).flatten(2)).view_as(tokens)


def draw_prompts(train: torch.Tensor, n: int, generator: torch.Generator) -> torch.Tensor:
    """Return the numbers of `n` prompts of a batch, drawn from each seed's `train` without replacement."""
    return train.gather(-1, torch.rand(train.shape, generator=generator).topk(n).indices)


@torch.no_grad()
def sample_batch(parameters: Parameters, prompts: torch.Tensor, samples: int, generator: torch.Generator) -> Batch:
    """Sample responses to prompts (seeds, n), and compare them within their groups."""
    seeds, n = prompts.shape
    log_probs = policy_logits(parameters, prompts).log_softmax(-1)
    bounds = log_probs.exp().cumsum_(-1)
    noise = torch.rand(seeds, n, LENGTH, samples, generator=generator)

    def draw(upper_bounds: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(upper_bounds, numbers).clamp_(max=VOCABULARY - 1)

    tokens = draw(bounds[:, :, :LAST].contiguous(), noise[:, :, :LAST].contiguous()).transpose(-1, -2)
    decided = tokens[..., FIRST]
    after = LAST + decided.clamp(max=DIGITS - 1)[..., None]
    answers = bounds.gather(2, after.expand(-1, -1, -1, VOCABULARY))
    tokens = torch.cat([tokens, draw(answers, noise[:, :, LAST, :, None].contiguous())], -1)
    before = torch.arange(LAST).expand(seeds, n, samples, -1)
    contexts = torch.cat([before, after], -1)
    return judged_batch(prompts, tokens, _chosen(log_probs, contexts, tokens), contexts)


def judged_batch(
    prompts: torch.Tensor, tokens: torch.Tensor, log_probs: torch.Tensor, contexts: torch.Tensor | None = None
) -> Batch:
    """Reward responses to prompts (seeds, n), and compare them within their groups; see `Batch`."""
    seeds, n, samples, _ = tokens.shape
    a, b, c = (digit[prompts][..., None] for digit in prompt_digits())
    right = (tokens[..., FIRST] == (a + b) % DIGITS) & (tokens[..., LAST] == (a + b + c) % DIGITS)
    rewards = right.float().flatten()[:, None]
    groups = torch.arange(seeds * n).repeat_interleave(samples)
    advantages = group_relative_advantages(rewards, torch.ones_like(rewards), groups)
    advantages = advantages.view(seeds, n, -1, 1).expand(-1, -1, -1, LENGTH)
    rewards = rewards.view(seeds, n, -1)
    return Batch(prompts, tokens if contexts is None else contexts, tokens, log_probs, advantages, rewards)


# Weights of the tokens of a mini-batch from the mini-batch, current probabilities and entropies.
Rule = Callable[[Batch, torch.Tensor, torch.Tensor], torch.Tensor]


def seeds_loss(
    parameters: Parameters,
    batch: Batch,
    weighting: TokenWeighting,
    rule: Rule | None = None,
    training: Training | None = None,
    network: Network = HIDDEN_LAYER,
) -> torch.Tensor:
    """Return the sum over seeds of the token-mean policy loss of `verl_trgrpo.core`, one seed in each row.

    The weights of a rule multiply the tokens' losses outside the clip, as those of `weighting` do.
    """
    log_probs, entropy = network.tokens(parameters, batch, rule is not None)
    old, weights, high = batch.log_probs, None, training.clip_high if training else 0.2
    if rule is not None:
        assert entropy is not None
        weights = rule(batch, log_probs.detach().exp(), entropy)
    if training and training.cispo:
        bounded = (log_probs.detach() - old).exp().clamp(max=1 + high)
        old, weights = log_probs.detach(), bounded if weights is None else weights * bounded
    log_probs = log_probs.flatten(1)
    return (
        len(log_probs)
        * compute_policy_loss(
            log_probs,
            old_log_prob=old.flatten(1),
            advantages=batch.advantages.flatten(1),
            response_mask=torch.ones_like(log_probs),
            weighting=weighting,
            clip=ClipRange(high=high),
            rollout_is_weights=None if weights is None else weights.flatten(1),
            loss_agg_mode="seq-mean-token-mean",
        ).loss
    )


def updates(batch: Batch, training: Training) -> Iterator[Batch]:
    """Yield the mini-batches of all passes over a batch."""
    for _ in range(training.passes):
        for begin in range(0, training.prompts, training.mini_prompts):
            yield batch.part(slice(begin, begin + training.mini_prompts))


def train_policies(
    start: Parameters,
    train: torch.Tensor,
    training: Training,
    arm: str,
    rates: torch.Tensor,
    seed: int,
    look: Callable[[int, Parameters], None] = lambda step, parameters: None,
    rule: Callable[[Batch], Rule] | None = None,
    network: Network = HIDDEN_LAYER,
) -> Parameters:
    """Train all seeds with one arm; arms with one `seed` see the same prompts and, with as many samples, the same random numbers.

    Args:
        start: parameters of each seed's policy, not changed.
        train: (seeds, n) prompts to train on.
        training, arm: how; `arm` is a key of `ARMS`.
        rates: (seeds,) learning rates.
        seed: of prompts and sampling.
        look: is called after each step with its number and the parameters, which change afterwards; the last are returned.
        rule: is called with each batch, and returns what weighs the tokens of its mini-batches.
        network: what the parameters are those of.
    """
    of_prompts, of_samples = (torch.Generator().manual_seed(one) for one in (seed, seed + 10**6))
    weighting = arm_weighting(arm, seed)
    parameters = [parameter.clone().requires_grad_() for parameter in start]
    moments = [(torch.zeros_like(parameter), torch.zeros_like(parameter)) for parameter in start]
    count = 0
    for step in range(training.steps):
        rate = rates[:, None, None] * (1 - step / training.steps if training.decay else 1)
        prompts = draw_prompts(train, training.prompts, of_prompts)
        batch = network.sample(parameters, prompts, training.samples, of_samples)
        weigh = rule(batch) if rule else None
        for part in updates(batch, training):
            loss = seeds_loss(parameters, part, weighting, weigh, training, network)
            gradients = torch.autograd.grad(loss, parameters)
            count += 1
            with torch.no_grad():
                for parameter, gradient, (mean, square) in zip(parameters, gradients, moments, strict=True):
                    if training.optimizer == "sgd":
                        parameter -= rate * gradient
                        continue
                    mean.lerp_(gradient, 0.1)
                    square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                    scale = (square / (1 - 0.999**count)).sqrt_().add_(1e-8)
                    parameter -= (rate / (1 - 0.9**count)) * mean / scale
        look(step + 1, parameters)
    return [parameter.detach() for parameter in parameters]
