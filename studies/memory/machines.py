"""Write into each recipe on which machines it fits by the memory plan: for each card the smallest number of cards of one machine.

python -m studies.memory.machines          prints the lines; --write puts them into the recipes
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from studies.memory.score import ADAMW, shape_of
from verl_trgrpo.memory.plan import Plan
from verl_trgrpo.memory.setup import setup_of
from verl_trgrpo.memory.verdict import DEPENDS, FITS, memory_verdict
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.keys import ACTOR, ROLLOUT, selected

RECIPES = Path(__file__).parents[2] / "recipes"
# Recipe and the name of its model in models.json.
MODELS = {
    "knights_and_knaves/qwen2.5-0.5b-instruct": "Qwen2.5-0.5B",
    "knights_and_knaves/qwen2.5-3b-instruct": "Qwen2.5-3B",
    "knights_and_knaves/qwen2.5-7b-instruct-1m": "Qwen2.5-7B",
    "deepscaler/deepseek-r1-distill-qwen-1.5b": "DeepSeek-R1-Distill-Qwen-1.5B",
    "deepscaler/qwen2.5-7b": "Qwen2.5-7B",
    "search_qa/qwen2.5-3b": "Qwen2.5-3B",
}
CARDS, NUMBERS = (24, 40, 48, 80), (1, 2, 4, 8)
LINE = re.compile(r"^# Memory plan: .*\n", re.MULTILINE)


def verdicts(recipe: str) -> Iterator[tuple[int, int, str]]:
    """Yield number of cards, GB of a card, and the plan's verdict, of machines on which the recipe's sizes divide."""
    for number in NUMBERS:
        config = compose(RECIPES / f"{recipe}.yaml", [f"trainer.n_gpus_per_node={number}"]).config
        if number % (selected(config, f"{ROLLOUT}.tensor_model_parallel_size") or 1):
            continue
        setup = setup_of(
            lambda key, found=config: selected(found, key), bool(selected(config, f"{ACTOR}.use_kl_loss")), False
        )
        for gb in CARDS:
            yield number, gb, memory_verdict(Plan(shape_of(MODELS[recipe]), setup, gb, ADAMW)).kind


def line_of(recipe: str) -> str:
    """Return the line of a recipe."""
    found = list(verdicts(recipe))
    fits = {gb: min((number for number, each, kind in found if (each, kind) == (gb, FITS)), default=0) for gb in CARDS}
    depends = [
        f"{number} x {gb}" for number, gb, kind in found if kind == DEPENDS and (not fits[gb] or number < fits[gb])
    ]
    several = ", ".join(f"{number} x {gb}" for gb, number in fits.items() if number)
    more = f"; by length of the responses {', '.join(depends)}" if depends else ""
    return f"# Memory plan: fits {several} GB and more of these cards{more}.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="On which machines do the recipes fit?")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    for recipe in MODELS:
        path, line = RECIPES / f"{recipe}.yaml", line_of(recipe)
        print(f"{recipe}: {line}", end="")
        if options.write:
            text = LINE.sub("", path.read_text())
            place = re.search(r"^# Hardware: .*\n(?:#   .*\n)*", text, re.MULTILINE)
            path.write_text(text[: place.end()] + line + text[place.end() :] if place else line + text)


if __name__ == "__main__":
    main()
