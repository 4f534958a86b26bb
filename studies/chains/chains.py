"""Train policies over chains of tokens whose accuracy can be computed, many seeds in one batch.

A prompt is three digits a, b and c. A chain has twelve tokens: at `FIRST` the policy decides r, which should be a + b, at `LAST`
the answer, which should be r + c (modulo `DIGITS`); the reward is 1 if both are right. The other tokens have no
influence: `fillers` of them can be chosen in four equally right ways (of the same vocabulary, so that their chance disturbs the
decisions), the rest are nearly certain.

The policy is a network with one hidden layer, so that tokens share parameters and what one of them learns disturbs the others.
It is fitted to a start in which the right r has a given probability, and most of the rest goes to one habitual mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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
    """

    optimizer: str
    passes: int
    steps: int = 40
    prompts: int = 8
    samples: int = 8
    mini_prompts: int = 4


# Weights: shaping, its parameters, and what is done to the weights of a mini-batch afterwards.
ARMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "grpo": ("uniform", {}, ""),
    "tr_grpo": ("sigmoid", {}, ""),
    "tr_grpo_token_mean": ("sigmoid", {}, "mean"),
    "tr_grpo_reverse": ("sigmoid", {"reverse": True}, ""),
    "tr_grpo_shuffled": ("sigmoid", {}, "shuffle"),
    "advantage_reweighting": ("linear", {}, ""),
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


def context_inputs() -> torch.Tensor:
    """Return the inputs of all contexts, one-hot: (prompts, contexts, features); a and b before the answer, then r and c."""
    digits = torch.eye(DIGITS)
    position = torch.eye(LENGTH)[[*range(LAST), *[LAST] * DIGITS]].expand(PROMPTS, -1, -1)
    r = torch.cat([torch.zeros(LAST, DIGITS), digits]).expand(PROMPTS, -1, -1)
    a, b, c = (digits[numbers][:, None].repeat(1, CONTEXTS, 1) for numbers in prompt_digits())
    a[:, LAST:], b[:, LAST:], c[:, :LAST] = 0, 0, 0
    return torch.cat([a, b, c, r, position], -1)


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


def policy_logits(parameters: Parameters, inputs: torch.Tensor) -> torch.Tensor:
    """Return logits, (seeds, rows, vocabulary), of inputs (seeds, rows, features) or (rows, features)."""
    first, shift, second, bias = parameters
    inputs = inputs.expand(len(first), *inputs.shape[-2:])
    return torch.baddbmm(bias, torch.baddbmm(shift, inputs, first).relu_(), second)


def start_policies(chain: Chain, seeds: int, seed: int, steps: int = 400) -> Parameters:
    """Fit `seeds` networks to the start distribution; every call with one `seed` gives the same."""
    generator = torch.Generator().manual_seed(seed)
    inputs, target = context_inputs(), start_distribution(chain)
    features = inputs.shape[-1]

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
        log_probs = policy_logits(parameters, inputs[some].flatten(0, 1)).log_softmax(-1)
        losses = -(target[some].flatten(0, 1) * log_probs).sum(-1).unflatten(-1, (-1, CONTEXTS))
        loss = (losses * weight).mean((-1, -2)).sum()  # of independent seeds
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return [parameter.detach() for parameter in parameters]


def split_prompts(seeds: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the numbers of the prompts to train on and of those held out, (seeds, prompts) each."""
    order = torch.rand(seeds, PROMPTS, generator=torch.Generator().manual_seed(seed)).argsort(-1)
    return order[:, HELD_OUT:], order[:, :HELD_OUT]


@torch.no_grad()
def exact_accuracy(parameters: Parameters, prompts: torch.Tensor) -> torch.Tensor:
    """Return the probability that both decisions are right for each seed, a mean over its `prompts` (seeds, n)."""
    logits = policy_logits(parameters, context_inputs()[prompts].flatten(1, 2))
    probs = logits.softmax(-1).unflatten(1, (-1, CONTEXTS))
    a, b, c = (digit[prompts] for digit in prompt_digits())
    r = (a + b) % DIGITS
    context = (LAST + r)[..., None, None].expand(-1, -1, 1, VOCABULARY)
    answers = probs.gather(2, context)[:, :, 0].gather(-1, ((r + c) % DIGITS)[..., None])
    return (probs[:, :, FIRST].gather(-1, r[..., None]) * answers).mean((-1, -2))


@dataclass
class Batch:
    """Responses of many seeds, by prompt and sample.

    Args:
        inputs: (seeds, prompts, contexts, features).
        contexts: (seeds, prompts, samples, tokens) numbers of the contexts that tokens were sampled from.
        tokens: (seeds, prompts, samples, tokens).
        log_probs: of the tokens under the policy that sampled them.
        advantages: of the tokens.
    """

    inputs: torch.Tensor
    contexts: torch.Tensor
    tokens: torch.Tensor
    log_probs: torch.Tensor
    advantages: torch.Tensor

    def part(self, some: slice) -> Batch:
        """Return the responses to some of the prompts."""
        return Batch(*(tensor[:, some] for tensor in vars(self).values()))


def token_log_probs(parameters: Parameters, batch: Batch) -> torch.Tensor:
    """Return log-probabilities of the tokens, (seeds, prompts, samples, tokens); contexts are shared within a group."""
    log_probs = policy_logits(parameters, batch.inputs.flatten(1, 2)).log_softmax(-1)
    log_probs = log_probs.unflatten(1, batch.inputs.shape[1:3]).flatten(2)
    chosen = (batch.contexts * VOCABULARY + batch.tokens).flatten(2)
    return log_probs.gather(-1, chosen).view_as(batch.tokens)


@torch.no_grad()
def sample_batch(
    parameters: Parameters, train: torch.Tensor, training: Training, inputs: torch.Tensor, generator: torch.Generator
) -> Batch:
    """Sample responses to prompts drawn from each seed's `train`, and compare them within their groups."""
    seeds, n = len(train), training.prompts
    drawn = torch.rand(train.shape, generator=generator).topk(n).indices
    prompts = train.gather(-1, drawn)
    own = inputs[prompts]
    probs = policy_logits(parameters, own.flatten(1, 2)).softmax(-1).unflatten(1, (n, CONTEXTS))
    bounds = probs.cumsum(-1)
    noise = torch.rand(seeds, n, training.samples, LENGTH, 1, generator=generator)

    def draw(upper_bounds: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return (upper_bounds < numbers).sum(-1).clamp(max=VOCABULARY - 1)

    tokens = draw(bounds[:, :, None, :LAST], noise[..., :LAST, :])
    decided = tokens[..., FIRST]
    after = LAST + decided.clamp(max=DIGITS - 1)[..., None]
    answers = bounds.gather(2, after.expand(-1, -1, -1, VOCABULARY))[..., None, :]
    tokens = torch.cat([tokens, draw(answers, noise[..., LAST:, :])], -1)
    before = torch.arange(LAST).expand(seeds, n, training.samples, -1)
    a, b, c = (digit[prompts] for digit in prompt_digits())
    right = (decided == ((a + b) % DIGITS)[..., None]) & (tokens[..., LAST] == ((a + b + c) % DIGITS)[..., None])
    rewards = right.float().flatten()[:, None]
    groups = torch.arange(seeds * n).repeat_interleave(training.samples)
    advantages = group_relative_advantages(rewards, torch.ones_like(rewards), groups)
    advantages = advantages.view(seeds, n, -1, 1).expand(-1, -1, -1, LENGTH)
    batch = Batch(own, torch.cat([before, after], -1), tokens, advantages, advantages)
    batch.log_probs = token_log_probs(parameters, batch)
    return batch


def seeds_loss(parameters: Parameters, batch: Batch, weighting: TokenWeighting) -> torch.Tensor:
    """Return the sum over seeds of the token-mean policy loss of `verl_trgrpo.core`, one seed in each row."""
    log_probs = token_log_probs(parameters, batch).flatten(1)
    return (
        len(log_probs)
        * compute_policy_loss(
            log_probs,
            old_log_prob=batch.log_probs.flatten(1),
            advantages=batch.advantages.flatten(1),
            response_mask=torch.ones_like(log_probs),
            weighting=weighting,
            clip=ClipRange(),
            loss_agg_mode="seq-mean-token-mean",
        ).loss
    )


def updates(batch: Batch, training: Training) -> Iterator[Batch]:
    """Yield the mini-batches of all passes over a batch."""
    for _ in range(training.passes):
        for begin in range(0, training.prompts, training.mini_prompts):
            yield batch.part(slice(begin, begin + training.mini_prompts))


def train_policies(
    start: Parameters, train: torch.Tensor, training: Training, arm: str, rates: torch.Tensor, seed: int
) -> Parameters:
    """Train all seeds with one arm; arms with one `seed` see the same prompts and the same random numbers.

    Args:
        start: parameters of each seed's policy, not changed.
        train: (seeds, n) prompts to train on.
        training: how.
        arm: key of `ARMS`.
        rates: (seeds,) learning rates.
        seed: of prompts and sampling.

    Returns:
        the parameters after the last step.
    """
    generator = torch.Generator().manual_seed(seed)
    weighting, inputs = arm_weighting(arm, seed), context_inputs()
    parameters = [parameter.clone().requires_grad_() for parameter in start]
    rate = rates[:, None, None]
    moments = [(torch.zeros_like(parameter), torch.zeros_like(parameter)) for parameter in start]
    count = 0
    for _ in range(training.steps):
        batch = sample_batch(parameters, train, training, inputs, generator)
        for part in updates(batch, training):
            gradients = torch.autograd.grad(seeds_loss(parameters, part, weighting), parameters)
            count += 1
            with torch.no_grad():
                for parameter, gradient, (mean, square) in zip(parameters, gradients, moments, strict=True):
                    if training.optimizer == "sgd":
                        parameter -= rate * gradient
                        continue
                    mean.lerp_(gradient, 0.1)
                    square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                    scale = (square / (1 - 0.999**count)).sqrt_().add_(1e-8)
                    parameter -= rate / (1 - 0.9**count) * mean / scale
    return [parameter.detach() for parameter in parameters]
