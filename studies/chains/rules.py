"""Say which tokens of a chain get the gradient: rules that know the decisions, and rules that see only what a trainer sees.

A rule gives each token a weight, which multiplies its loss outside the clip. Weights are computed anew for each mini-batch, for
every seed by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from studies.chains.chains import FIRST, LAST, LENGTH, VOCABULARY, Batch, Rule

# A token is rare below this probability, the threshold of `actor/tr_grad_share_low_prob`.
RARE = 0.25
# Share of tokens that "top" rules keep.
SHARE = 0.2
# What running means keep from one batch to the next.
KEPT = 0.9
DECIDES = torch.zeros(LENGTH, dtype=torch.bool)
DECIDES[[FIRST, LAST]] = True


class View(NamedTuple):
    """What a rule may look at.

    Args:
        batch: a mini-batch; advantages, prompts and tokens of it.
        probs: (seeds, prompts, samples, tokens) current probabilities of the tokens.
        entropy: (seeds, prompts, samples, tokens) of the current policy where the tokens were chosen, in nats.
        generator: of rules by chance.
        relevance: (seeds, LENGTH, VOCABULARY) or None, see `Relevance`.
    """

    batch: Batch
    probs: torch.Tensor
    entropy: torch.Tensor
    generator: torch.Generator
    relevance: torch.Tensor | None = None


def top(scores: torch.Tensor) -> torch.Tensor:
    """Return 1 for the fifth of each seed's tokens with the highest scores (rounded up, ties kept), else 0."""
    flat = scores.flatten(1)
    least = flat.topk(-int(-SHARE * flat.shape[1] // 1), sorted=True).values[:, -1]
    return (scores >= least.view(-1, *[1] * (scores.dim() - 1))).float()


def success(view: View) -> torch.Tensor:
    """Return the share of right answers in the group of each token, (seeds, prompts, 1, 1)."""
    return view.batch.rewards.mean(-1)[..., None, None]


def relevance_weights(view: View) -> torch.Tensor:
    """Return the relevance of each token's place and id, divided by the largest of the seed."""
    assert view.relevance is not None
    scaled = view.relevance / view.relevance.amax((1, 2), keepdim=True).clamp(min=1e-9)
    tokens = view.batch.tokens
    return scaled.flatten(1).gather(-1, (torch.arange(LENGTH) * VOCABULARY + tokens).flatten(1)).view_as(view.probs)


RULES: dict[str, Callable[[View], torch.Tensor]] = {
    # Know the decisions
    "oracle": lambda view: DECIDES.float().expand_as(view.probs),
    "without_rare_wording": lambda view: ((view.probs >= RARE) | DECIDES).float(),
    "without_rare_decisions": lambda view: ((view.probs >= RARE) | ~DECIDES).float(),
    # See probabilities
    "top_entropy": lambda view: top(view.entropy),
    "other_entropy": lambda view: 1 - top(view.entropy),
    "random_fifth": lambda view: top(torch.rand(view.probs.shape, generator=view.generator)),
    # See the group of answers as well
    "success_rarity": lambda view: success(view) * (1 - view.probs),
    "entropy_spread": lambda view: (success(view) * (1 - success(view))).sqrt() * view.entropy,
    "covariance_token": relevance_weights,
    "covariance_place": relevance_weights,
}


class Relevance:
    """Learn which tokens go with the advantage: running means over batches, for every seed by itself.

    In a group of n answers with unequal rewards, the squared correlation between "the answer has this token" and the reward is
    1 / (n - 1) on average where the two are independent. What it is above that, averaged over the groups in which the token
    varies, is the token's relevance; below 0 it counts as 0. By `place`, "this token" is an id at a position, which needs
    answers of one form; otherwise an id anywhere in the answer.
    """

    def __init__(self, seeds: int, place: bool) -> None:
        self.place = place
        self.sums, self.counts = torch.zeros(2, seeds, LENGTH if place else 1, VOCABULARY)

    def observe(self, batch: Batch) -> torch.Tensor:
        """Take in a batch; return the relevance (seeds, LENGTH, VOCABULARY), 1 for what has not varied yet."""
        has = torch.nn.functional.one_hot(batch.tokens, VOCABULARY).float()  # (seeds, prompts, samples, tokens, ids)
        if not self.place:
            has = has.amax(-2, keepdim=True)
        rewards = batch.rewards[..., None, None]
        samples = rewards.shape[2]
        both, spread, own = (
            (one * other).mean(2) - one.mean(2) * other.mean(2)
            for one, other in ((has, rewards), (has, has), (rewards, rewards))
        )
        varies = (spread > 1e-6) & (own > 1e-6)
        squared = torch.where(varies, both**2 / (spread * own).clamp(min=1e-9) - 1 / (samples - 1), 0)
        self.sums = KEPT * self.sums + squared.sum(1)
        self.counts = KEPT * self.counts + varies.sum(1)
        found = torch.where(self.counts > 0, (self.sums / self.counts.clamp(min=1e-9)).clamp(min=0), 1)
        return found.expand(-1, LENGTH, -1)


def make_rule(name: str, seeds: int, seed: int) -> Callable[[Batch], Rule]:
    """Return a rule of `RULES` as `train_policies` takes it; `seed` is that of rules by chance."""
    generator, learn = torch.Generator().manual_seed(seed + 2 * 10**6), Relevance(seeds, name.endswith("place"))

    def observe(batch: Batch) -> Rule:
        relevance = learn.observe(batch) if name.startswith("covariance") else None
        return lambda part, probs, entropy: RULES[name](View(part, probs, entropy, generator, relevance))

    return observe
