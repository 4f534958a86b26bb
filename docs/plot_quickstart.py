"""Draws docs/quickstart.png: the accuracy of a run of the quickstart, and one answer before and after.

Of the puzzles that were answered wrongly before and rightly after, the one whose answer after training has the median length.
Run, from a checkout:
  make quickstart seed=0
  python docs/plot_quickstart.py runs/quickstart/tr_grpo-seed0
"""

from __future__ import annotations

import argparse
import re
import textwrap
from pathlib import Path

COLUMNS = 62
# Of a line of text and of a character, in inches; colours of docs/plot_tokens.py.
LINE, CHARACTER = 0.2, 0.076
PANEL, DARK, QUIET, RIGHT, WRONG = "#f6f8fa", "#1b1f24", "#57606a", "#1a7f37", "#cf222e"


def wrapped(text: str) -> list[str]:
    """Return the lines of an answer, without special tokens, at most `COLUMNS` wide."""
    text = text.replace("<|im_end|>", "").replace("<|endoftext|>", "").strip()
    return [part for line in text.splitlines() for part in textwrap.wrap(line, COLUMNS) or [""]]


def draw(run: Path, path: Path) -> None:
    """Draw the picture of a run directory; ValueError if no prompt was answered wrongly before and rightly after."""
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    from verl_trgrpo.compare.page import read_samples
    from verl_trgrpo.runs.metrics import read_run

    samples = read_samples(run / "validation", most=10**6)
    better = [pair for pair in samples.pairs if pair.kind == "wrong to right"] if samples else []
    if not samples or not better:
        raise ValueError(
            f"{run}: no prompt was answered wrongly before and rightly after; give a finished run of the quickstart"
        )
    pair = sorted(better, key=lambda pair: (len(pair.after.text), pair.after.prompt))[len(better) // 2]
    parts = [
        (
            "a puzzle",
            DARK,
            wrapped(re.sub(r"<\|im_(start|end)\|>\w*|^(user|assistant)$", "", pair.after.prompt, flags=re.M)),
        ),
        (f"before training: {pair.before.verdict}", WRONG, wrapped(pair.before.text)),
        (f"after {samples.last} steps: {pair.after.verdict}", RIGHT, wrapped(pair.after.text)),
    ]
    steps = [(step.number, step.accuracy) for step in read_run(run).line if step.accuracy is not None]

    text_width = COLUMNS * CHARACTER + 0.3
    height = sum(len(lines) + 2.6 for *_, lines in parts) * LINE + 0.2
    figure = Figure(figsize=(3.9 + text_width, height))
    left = 3.9 / (3.9 + text_width)
    curve = figure.add_axes((0.12 * left * 1.6, 0.62 / height, 0.76 * left, 1 - 1.1 / height))
    curve.plot(*zip(*steps, strict=True), marker="o", color="#4292c6", clip_on=False)
    curve.set(xlabel="step", ylabel="accuracy", ylim=(0, 1), xticks=[number for number, _ in steps])
    curve.set_title(f"{len(samples.pairs)} held-out puzzles", fontsize=10)
    for (number, value), side in ((steps[0], "left"), (steps[-1], "right")):
        curve.annotate(
            f"{value:.2f}",
            (number, value),
            (0, -14 if side == "left" else 8),
            textcoords="offset points",
            ha=side,
            color=DARK,
        )
    curve.spines[["top", "right"]].set_visible(False)
    page = figure.add_axes((left, 0, 1 - left, 1), xlim=(0, text_width), ylim=(height, 0))
    page.set_axis_off()
    top = 0.15
    for title, colour, lines in parts:
        panel = FancyBboxPatch(
            (0.1, top + 0.3), text_width - 0.25, len(lines) * LINE + 0.12, boxstyle="round,pad=0.02", color=PANEL
        )
        page.add_patch(panel)
        page.text(0.1, top + 0.2, title, color=colour, fontsize=9, weight="bold")
        for number, line in enumerate(lines):
            page.text(0.2, top + 0.5 + number * LINE, line, color=DARK, fontsize=8, family="monospace")
        top += (len(lines) + 2.6) * LINE
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="directory of a finished run of the quickstart")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "quickstart.png")
    options = parser.parse_args()
    draw(options.run, options.out)
    print(options.out)


if __name__ == "__main__":
    main()
