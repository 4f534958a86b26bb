"""A page that shows what token weights do to a model's own words: every token of some responses, coloured by its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from verl_trgrpo import __version__
from verl_trgrpo.analysis.rollouts import Rollout, chunks, response_logits
from verl_trgrpo.common.pages import render_page, write_page
from verl_trgrpo.common.progress import Progress, no_progress

if TYPE_CHECKING:
    from verl_trgrpo.core import Shaping

_TEMPLATE = Path(__file__).with_name("tokens.html.jinja")
# Of these many groups at most one right and one wrong response are shown.
_GROUPS = 8


class Token(NamedTuple):
    """One token of a response.

    Args:
        text: what it stands for.
        prob: probability that the model gave it, in [0, 1].
        weight: by the shaping.
        gradient: proxy of its gradient's size in the update, |A| w (1 - p).
        plain: the same, were the weight 1.
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
    """The best and the worst response of the groups that have a difference, as long as there are no more tokens than `most`.

    Where no group has one, the first two of each.

    Args:
        rollouts: group after group.
        samples: responses in a group.
        most: tokens, all together; one response is shown in any case.
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
def look_at(
    tokenizer: Any, model: Any, rollouts: Sequence[Rollout], shaping: Shaping, progress: Progress = no_progress
) -> list[Shown]:
    """Compute the figures of every token of `rollouts`."""
    found = []
    for rollout in progress(rollouts, len(rollouts), "responses"):
        (logits,) = response_logits(model, [rollout])
        log_q = torch.log_softmax(logits.double(), dim=-1)
        probs = log_q.gather(-1, rollout.response[:, None])[:, 0].exp()
        weights = shaping(probs.float()).double()
        plain = abs(rollout.advantage) * (1 - probs)
        columns = (probs, weights, plain * weights, plain, torch.special.entr(log_q.exp()).sum(-1))
        pieces = token_texts(tokenizer, rollout.response.tolist())
        rows = zip(pieces, *(column.tolist() for column in columns), strict=True)
        prompt = tokenizer.decode(rollout.prompt)
        found.append(Shown(prompt, rollout.advantage, [Token(*row) for row in rows]))
    return found


def token_texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The text that each token adds to those before; a character of several tokens comes with its last one."""
    texts, done = [], 0
    for end in range(1, len(ids) + 1):
        # A few tokens of context: some tokenizers drop a space at the beginning of a text.
        context = tokenizer.decode(ids[max(0, done - 4) : done])
        text = tokenizer.decode(ids[max(0, done - 4) : end])[len(context) :]
        if text.endswith("\ufffd") and end < len(ids):
            texts.append("")
            continue
        texts.append(text)
        done = end
    return texts


def write_tokens(path: Path, title: str, shaping: str, shown: Sequence[Shown], figures: Mapping[str, Any]) -> None:
    """Write the page: one HTML file without scripts that asks for nothing; `figures` say more about the responses."""
    tokens = [token for one in shown for token in one.tokens]
    lowest, highest = min(token.weight for token in tokens), max(token.weight for token in tokens)
    strongest = max(max(token.gradient, token.plain) for token in tokens) or 1.0
    page = render_page(
        _TEMPLATE, title=title, shaping=shaping, shown=shown, figures=figures, version=__version__,
        lowest=lowest, highest=highest, spread=(highest - lowest) or 1.0, strongest=strongest,
    )  # fmt: skip
    write_page(path, page)
