"""Write a page that shows the effect of token weights: every token of some responses, coloured by its figures.

example, from a checkout:
  python -m studies.gradients.tokens --model runs/tr_grpo/global_step_350 --data test.parquet --out DIR

--out receives tokens.html; README.md explains it. Exit code: 0 fine, 1 failed, 2 wrong input, 130 interrupted."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from omegaconf import OmegaConf

from studies.rollouts import Rollout, RolloutOptions, chunks, open_policy, rollout_logits, sample_rollouts
from verl_trgrpo import __version__
from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.findings import messages_of
from verl_trgrpo.common.options import exit_code, parse_options
from verl_trgrpo.common.progress import Progress, interruptible, no_progress
from verl_trgrpo.common.text import render_page
from verl_trgrpo.core import Shaping, make_shaping
from verl_trgrpo.data.prompts import BoundedTokenizer
from verl_trgrpo.evaluation.checkpoint import model_label

_TEMPLATE = Path(__file__).with_name("tokens.html.jinja")
# Number of groups of which two responses are shown.
_GROUPS = 8


@dataclass(frozen=True, kw_only=True)
class TokensOptions(RolloutOptions):
    """One page.

    Args:
        model: run directory, whose latest checkpoint is taken, one of its global_step_N, Hugging Face directory or hub name.
        out: directory for the page.
        shaping: NAME or NAME:PARAMETER=VALUE,...; sigmoid is TR-GRPO's.
        tokens: at most so many are shown.
    """

    model: str
    out: Path
    shaping: str = "sigmoid"
    tokens: Annotated[int, "[1, inf)"] = 2000

    def problems(self) -> list[str]:
        """Return what is wrong with the shaping."""
        return shaping_problems([self.shaping])


def parse_shaping(text: str) -> Shaping:
    """Build the shaping of ``name`` or ``name:parameter=value,...``, such as ``sigmoid:reverse=true,tau=6``.

    Raises:
        ValueError: it cannot be built, or needs more than probabilities.
    """
    name, _, rest = text.partition(":")
    parameters: Any = OmegaConf.from_dotlist(rest.split(",") if rest else [])
    shaping = make_shaping(name, **parameters)
    if not shaping.probs_only:
        raise ValueError(f"shaping={text} needs {', '.join(shaping.inputs)}; only probabilities are known here")
    return shaping


def shaping_problems(texts: Sequence[str]) -> list[str]:
    """Return what is wrong with shapings for `parse_shaping`."""
    messages = []
    for text in texts:
        try:
            parse_shaping(text)
        except ValueError as error:
            messages += messages_of(error)
    return messages


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


def token_pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return the string that each token adds to those before; a character of several tokens comes with its last one."""
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
        pieces = token_pieces(tokenizer, rollout.response.tolist())
        rows = zip(pieces, *(column.tolist() for column in columns), strict=True)
        prompt = tokenizer.decode(rollout.prompt)
        found.append(Shown(prompt, rollout.advantage, [Token(*row) for row in rows]))
    return found


def find_tokens(options: TokensOptions, progress: Progress = no_progress) -> list[Shown]:
    """Sample responses, and compute the figures of the tokens of some; raises a ValueError for a model without text."""
    prompts, model = open_policy(options, options.model, options.out)
    rollouts = sample_rollouts(prompts, model, options, progress, differing=False)
    chosen = choose(rollouts, options.samples, options.tokens)
    return token_figures(prompts.tokenizer, model, chosen, parse_shaping(options.shaping), progress)


def figures_of(shown: Sequence[Shown]) -> dict[str, str]:
    """Return what unlikely tokens are of those shown, by name."""
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
    return figures


def render_tokens(title: str, shaping: str, shown: Sequence[Shown], figures: Mapping[str, Any]) -> str:
    """Return the page: HTML without scripts or links to other files; `figures` are further lines about the responses."""
    tokens = [token for one in shown for token in one.tokens]
    lowest, highest = min(token.weight for token in tokens), max(token.weight for token in tokens)
    strongest = max(max(token.gradient, token.plain) for token in tokens) or 1.0
    return render_page(
        _TEMPLATE, title=title, shaping=shaping, shown=shown, figures=figures, version=__version__,
        lowest=lowest, highest=highest, spread=(highest - lowest) or 1.0, strongest=strongest,
    )  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    options = parse_options(TokensOptions, "python -m studies.gradients.tokens", argv=argv)
    page = options.out / "tokens.html"
    with interruptible() as progress:
        shown = find_tokens(options, progress)
    title = f"Effect of {options.shaping} on the tokens of {model_label(options.model)}"
    write_text(page, render_tokens(title, options.shaping, shown, figures_of(shown)))
    sys.stdout.write(f"{page}\n")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(partial(main, sys.argv[1:])))
