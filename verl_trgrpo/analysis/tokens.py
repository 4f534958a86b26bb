"""Write a page that shows the effect of token weights: every token of some responses, coloured by its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from verl_trgrpo import __version__
from verl_trgrpo.analysis.options import AnalyzeOptions
from verl_trgrpo.analysis.rollouts import Rollout, chunks, rollout_logits
from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import render_page
from verl_trgrpo.data.prompts import BoundedTokenizer

if TYPE_CHECKING:
    from verl_trgrpo.core import Shaping

_TEMPLATE = Path(__file__).with_name("tokens.html.jinja")
# Number of groups of which two responses are shown.
_GROUPS = 8


class Token(NamedTuple):
    """One token of a response.

    Args:
        text: its string.
        prob: probability p that the model gave it, in [0, 1].
        weight: weight w of the shaping.
        gradient: proxy of its gradient's size in the update, |A| w (1 - p).
        plain: the same with w = 1.
        entropy: of the distribution that it was sampled from, in nats.
    """

    text: str
    prob: float
    weight: float
    gradient: float
    plain: float
    entropy: float


class Shown(NamedTuple):
    """A response on the page: its prompt, its advantage, and its tokens."""

    prompt: str
    advantage: float
    tokens: list[Token]


def choose(rollouts: Sequence[Rollout], samples: int, most: int) -> list[Rollout]:
    """Choose the best and the worst response of groups with different rewards; without any, the first two of each group.

    A group has so many `samples`. The responses have at most so many tokens in all; one is chosen in any case.
    """
    chosen: list[Rollout] = []
    groups = chunks(rollouts, samples)
    different = [
        sorted(group, key=lambda one: -one.advantage) for group in groups if any(one.advantage for one in group)
    ]
    pairs = [(group[0], group[-1]) for group in different] or [(group[0], group[1]) for group in groups]
    for pair in pairs[:_GROUPS]:
        for rollout in pair:
            if chosen and sum(len(one.response) for one in [*chosen, rollout]) > most:
                return chosen
            chosen.append(rollout)
    return chosen


@torch.no_grad()
def token_figures(
    tokenizer: BoundedTokenizer,
    model: Any,
    rollouts: Sequence[Rollout],
    shaping: Shaping,
    progress: Progress = no_progress,
) -> list[Shown]:
    """Compute the figures of every token of `rollouts`."""
    found = []
    for rollout in progress(rollouts, len(rollouts), "responses"):
        (logits,) = rollout_logits(model, [rollout])
        log_q = torch.log_softmax(logits.double(), dim=-1)
        probs = log_q.gather(-1, rollout.response[:, None])[:, 0].exp()
        weights = shaping(probs.float()).double()
        plain = abs(rollout.advantage) * (1 - probs)
        columns = (probs, weights, plain * weights, plain, torch.special.entr(log_q.exp()).sum(-1))
        pieces = tokenizer.pieces(rollout.response)
        rows = zip(pieces, *(column.tolist() for column in columns), strict=True)
        prompt = tokenizer.decode(rollout.prompt)
        found.append(Shown(prompt, rollout.advantage, [Token(*row) for row in rows]))
    return found


def write_tokens(
    path: Path,
    label: str,
    tokenizer: BoundedTokenizer,
    model: Any,
    rollouts: Sequence[Rollout],
    options: AnalyzeOptions,
    progress: Progress,
) -> None:
    """Write a page about some of `rollouts` for the first shaping; `label` names the model in its title."""
    name = options.shaping[0]
    chosen = choose(rollouts, options.samples, options.tokens)
    shown = token_figures(tokenizer, model, chosen, options.shapings[name], progress)
    tokens = [token for one in shown for token in one.tokens]
    rare = [token for token in tokens if token.prob < 0.25]
    figures = {"tokens with p < 0.25": f"{len(rare) / len(tokens):.1%} of those shown"}
    if any(one.advantage for one in shown):
        plain = sum(token.plain for token in rare) / sum(token.plain for token in tokens)
        weighted = sum(token.gradient for token in rare) / sum(token.gradient for token in tokens)
        figures["their share of |A| (1 - p)"] = f"{plain:.1%}"
        figures["their share of |A| w (1 - p)"] = f"{weighted:.1%}"
    else:
        figures["rewards"] = "equal in every group, so that A = 0 and no token has a gradient"
    write_text(path, render_tokens(f"Effect of {name} on the tokens of {label}", name, shown, figures))


def render_tokens(title: str, shaping: str, shown: Sequence[Shown], figures: Mapping[str, Any]) -> str:
    """Return the page: HTML without scripts or links to other files; `figures` are further lines about the responses."""
    tokens = [token for one in shown for token in one.tokens]
    lowest, highest = min(token.weight for token in tokens), max(token.weight for token in tokens)
    strongest = max(max(token.gradient, token.plain) for token in tokens) or 1.0
    return render_page(
        _TEMPLATE, title=title, shaping=shaping, shown=shown, figures=figures, version=__version__,
        lowest=lowest, highest=highest, spread=(highest - lowest) or 1.0, strongest=strongest,
    )  # fmt: skip
