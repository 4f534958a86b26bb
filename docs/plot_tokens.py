"""Draws docs/tokens.png: answers of the small language model, every token coloured by its probability.

It prints the figures that README.md has beside the picture. Run, from a checkout:
  python -m examples.small_lm --prepare
  python docs/plot_tokens.py --model runs/small_lm/word_problems/model \
      --data runs/small_lm/word_problems/data/train.parquet --prompts 8 --max-tokens 80 --out runs/small_lm/tokens
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from studies.gradients.tokens import Shown, TokensOptions, figures_of, find_tokens
from verl_trgrpo.common.options import exit_code, parse_options
from verl_trgrpo.common.progress import interruptible
from verl_trgrpo.core import make_shaping

SHOWN, COLUMNS = 3, 92
# Of a line of text and of a character, in inches; colours of the page that `studies.gradients.tokens` writes.
LINE, CHARACTER = 0.26, 0.0935
STRONG, PALE, PANEL, DARK, QUIET = "#4292c6", "#f7fbff", "#f6f8fa", "#1b1f24", "#57606a"


def pieces(one: Shown) -> Iterator[tuple[int, int, str, float]]:
    """Yield line, column, text and probability of the parts of a response's tokens, broken at line ends and `COLUMNS`."""
    line = column = 0
    for token in one.tokens:
        for number, part in enumerate(token.text.split("\n")):
            if number or column + len(part) > COLUMNS:
                line, column = line + 1, 0
            if part:
                yield line, column, part, token.prob
            column += len(part)


def colour(prob: float) -> Any:
    """Return a colour from `STRONG` at 0 to `PALE` at 1."""
    strong, pale = (np.array([int(code[at : at + 2], 16) for at in (1, 3, 5)]) / 255 for code in (STRONG, PALE))
    return strong + (pale - strong) * prob


def draw(shown: Sequence[Shown], path: Path) -> None:
    """Draw responses under a legend of probabilities and the weights of `sigmoid`."""
    parts = [[*pieces(one)] for one in shown]
    heights = [3.2 + max(line for line, *_ in part) for part in parts]
    width, height = COLUMNS * CHARACTER + 0.4, (3.5 + sum(heights)) * LINE
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    text = partial(axes.text, va="center", color=DARK, fontsize=10)
    probs = np.linspace(0, 1, 201)
    left, right = 2.3, 7.3
    axes.imshow([[colour(p) for p in probs]], extent=(left, right, 2 * LINE, LINE), aspect="auto")
    text(0.1, 1.5 * LINE, "probability p")
    text(0.1, 2.6 * LINE, "weight w of its loss")
    for p in (0, 0.25, 0.5, 0.75, 1):
        text(left + 0.1 + (right - left - 0.2) * p, 1.5 * LINE, f"{p:g}", ha="center", fontsize=9)
        weight = float(make_shaping("sigmoid")(torch.tensor(float(p))))
        text(left + 0.1 + (right - left - 0.2) * p, 2.6 * LINE, f"{weight:.2f}", ha="center", fontsize=9, color=QUIET)
    top = 3.5 * LINE
    for one, part, rows in zip(shown, parts, heights, strict=True):
        side = "Better" if one.advantage > 0 else "Worse"
        title = f"{side} than its group, A = {one.advantage:.2f}, {len(one.tokens)} tokens"
        text(0.1, top + 0.5 * LINE, title, weight="bold")
        size = (width - 0.1, (rows - 1.6) * LINE)
        axes.add_patch(FancyBboxPatch((0.05, top + LINE), *size, boxstyle="square,pad=0", color=PANEL))
        for line, column, written, prob in part:
            x, y = 0.2 + column * CHARACTER, top + (1.3 + line) * LINE
            box = FancyBboxPatch((x, y - 0.02), len(written) * CHARACTER, 0.85 * LINE, boxstyle="square,pad=0")
            box.set(facecolor=colour(prob), linewidth=0)
            axes.add_patch(box)
            for at, character in enumerate(written):
                text(
                    x + (at + 0.5) * CHARACTER,
                    y + 0.4 * LINE,
                    character,
                    ha="center",
                    family="monospace",
                    parse_math=False,
                )
        top += rows * LINE
    figure.savefig(path, dpi=100)


def main() -> int:
    """Run the command line and return the exit code."""
    options = parse_options(TokensOptions, "python docs/plot_tokens.py", __doc__ or "")
    with interruptible() as progress:
        shown = find_tokens(options, progress)
    draw(shown[:SHOWN], Path(__file__).with_name("tokens.png"))
    print("\n".join(f"{name}: {value}" for name, value in figures_of(shown).items()))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
