"""Find out which rare tokens of a model's answers decide the reward, and which are wording, by continuing without them.

A rare token of a sampled answer is replaced by the most likely other token. Both beginnings are continued several times. If the
rewards of the two differ by more than chance explains, the token decides; else it is wording as far as so few continuations tell.
A weight that sees only the probability p treats both kinds alike.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

# Threshold of `actor/tr_grad_share_low_prob`.
RARE = 0.25
# Of each of both beginnings.
CONTINUATIONS = 8
# Chance alone finds a difference in at most this share of tokens.
ALPHA = 0.05
# Logarithms of probabilities that an engine returns for each position beside that of the token.
ALTERNATIVES = 2


@dataclass(frozen=True)
class Written:
    """An answer, token by token.

    Args:
        tokens: ids.
        probs: probability of each token.
        others: most likely other token of each position.
        text: decoded.
        cut: True if it ended at a length limit.
    """

    tokens: Sequence[int]
    probs: Sequence[float]
    others: Sequence[int]
    text: str
    cut: bool = False


@dataclass(frozen=True)
class ProbedToken:
    """A rare token, and the rewards of the continuations with it and with the likely token in its place."""

    prob: float
    own: Sequence[float]
    other: Sequence[float]

    @property
    def change(self) -> float:
        """Return the mean reward with the token minus that without it."""
        return fmean(self.own) - fmean(self.other)

    @property
    def decides(self) -> bool:
        """Return whether a permutation test tells the two apart at `ALPHA`."""
        from scipy import stats

        if len({*self.own, *self.other}) < 2:
            return False
        found = stats.permutation_test(
            (self.own, self.other), lambda x, y: fmean(x) - fmean(y), n_resamples=999, rng=0, vectorized=False
        )
        return bool(found.pvalue < ALPHA)


# Continue an answer to prompt number i behind tokens: (i, tokens, number of the sample) to the whole answer.
Continue = Callable[[int, Sequence[int], int], Awaitable[Written]]


def cost_text(answers: int, tokens: int) -> str:
    """Return what preview and diagnosis sample at most: `answers` twice, then continuations for so many rare tokens."""
    more = f"{2 * CONTINUATIONS * tokens:,} continuations (2 x {CONTINUATIONS} for each of {tokens} rare tokens)"
    return f"{2 * answers} answers, then up to {more}, on average half an answer long; the engine's cache shares their beginnings"


async def probe_rare_tokens(
    answers: Mapping[int, Sequence[Written]],
    proceed: Continue,
    score: Callable[[int, Written], float],
    tokens: int,
    seed: int,
) -> tuple[list[ProbedToken], float]:
    """Probe at most `tokens` rare tokens of answers, drawn with `seed`; the last token of an answer decides by itself.

    Args:
        answers: answers to each prompt, by its number.
        proceed: samples a continuation.
        score: returns the reward of an answer to a prompt.

    Returns:
        the probes, and the share of rare tokens (p < `RARE`) in the answers.
    """
    places = [
        (prompt, answer, place)
        for prompt, own in answers.items()
        for answer in own
        for place, prob in enumerate(answer.probs)
        if prob < RARE
    ]
    written = sum(len(answer.tokens) for own in answers.values() for answer in own)
    drawn = random.Random(seed).sample(places, min(tokens, len(places)))

    async def rewards(prompt: int, begun: Sequence[int], number: int) -> list[float]:
        samples = range(number * CONTINUATIONS, (number + 1) * CONTINUATIONS)
        found = await asyncio.gather(*(proceed(prompt, begun, sample) for sample in samples))
        return [score(prompt, answer) for answer in found]

    async def probe(number: int, prompt: int, answer: Written, place: int) -> ProbedToken:
        before = list(answer.tokens[:place])
        own, other = await asyncio.gather(
            rewards(prompt, [*before, answer.tokens[place]], 2 * number),
            rewards(prompt, [*before, answer.others[place]], 2 * number + 1),
        )
        return ProbedToken(answer.probs[place], own, other)

    probes = await asyncio.gather(*(probe(number, *place) for number, place in enumerate(drawn)))
    return list(probes), len(places) / max(written, 1)


def diagnosis_text(probes: Sequence[ProbedToken], share: float) -> str:
    """Return a picture of how rewards change without each rare token, and a sentence."""
    if not probes:
        return (
            f"rare tokens (p < {RARE}): none in these answers, so weights by p change only the length of the gradient"
        )
    lines = [f"reward with a rare token (p < {RARE}) minus reward with a likely one in its place:"]
    edges = (-1.01, -0.625, -0.375, -0.125, 0.125, 0.375, 0.625, 1.01)
    for low, high in itertools.pairwise(edges):
        count = sum(low <= max(-1.0, min(1.0, probe.change)) < high for probe in probes)
        lines.append(f"{max(low, -1):+6.2f} to {min(high, 1):+5.2f} {'#' * round(50 * count / len(probes))} {count}")
    deciding = [probe for probe in probes if probe.decides]
    helpful = sum(probe.change > 0 for probe in deciding)
    lines.append(
        f"Of {len(probes)} rare tokens ({share:.1%} of all tokens are rare) {len(deciding)} decide: {helpful} raise the reward, "
        f"{len(deciding) - helpful} lower it; chance alone would give up to {ALPHA * len(probes):.0f}. "
        f"{len(probes) - len(deciding)} are wording as far as this shows; a weight that sees only p treats both kinds alike."
    )
    return "\n".join(lines)
