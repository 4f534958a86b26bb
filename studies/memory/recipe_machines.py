"""Compute on which machines recipes and sizes of models fit by the memory plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from studies.memory.scoring import ADAMW, shape_of
from verl_trgrpo.memory.plan import Plan
from verl_trgrpo.memory.setup import Setup, setup_of
from verl_trgrpo.memory.verdict import DEPENDS, FITS, memory_verdict
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.keys import ACTOR, MODEL, ROLLOUT, selected

RECIPES = Path(__file__).parents[2] / "recipes"
# Recipe and the name of its model in models.json.
MODELS = {
    "knights_and_knaves/qwen2.5-0.5b-instruct": "Qwen2.5-0.5B",
    "knights_and_knaves/qwen2.5-3b-instruct": "Qwen2.5-3B",
    "knights_and_knaves/qwen2.5-7b-instruct-1m": "Qwen2.5-7B",
    "deepscaler/deepseek-r1-distill-qwen-1.5b": "DeepSeek-R1-Distill-Qwen-1.5B",
    "deepscaler/qwen2.5-7b": "Qwen2.5-7B",
    "deepscaler/qwen3-4b": "Qwen3-4B",
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
        setup = setup_of(partial(selected, config), bool(selected(config, f"{ACTOR}.use_kl_loss")), False)
        for gb in CARDS:
            yield number, gb, memory_verdict(Plan(shape_of(MODELS[recipe], setup.lora_rank), setup, gb, ADAMW)).kind


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


# A usual run: GRPO on packed responses of up to 3,072 tokens, everything offloaded that can be.
_USUAL = (
    "algorithm.adv_estimator=grpo", "data.max_prompt_length=1024", "data.max_response_length=3072", "data.train_batch_size=128",
    f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.n=8", f"{ROLLOUT}.max_model_len=4096", f"{ROLLOUT}.gpu_memory_utilization=0.5",
    f"{ACTOR}.ppo_mini_batch_size=128", f"{ACTOR}.use_dynamic_bsz=true", f"{ACTOR}.ppo_max_token_len_per_gpu=8192",
    f"{ACTOR}.fsdp_config.param_offload=true", f"{ACTOR}.fsdp_config.optimizer_offload=true",
)  # fmt: skip
_LORA = (
    f"{MODEL}.lora_rank=32", f"{ROLLOUT}.layered_summon=true", f"{ROLLOUT}.load_format=safetensors",
    f"{ACTOR}.fsdp_config.model_dtype=bfloat16",
)  # fmt: skip
_SIZES = ("0.5B", "1.5B", "3B", "7B", "14B", "32B", "72B")


@cache
def _usual(more: tuple[str, ...]) -> Setup:
    config = compose("ppo_trainer", [*_USUAL, *more]).config
    return setup_of(lambda key: selected(config, key), False, False)


def smallest(size: str, more: tuple[str, ...], gb: int) -> str:
    """Return the smallest number of cards, up to 32, on which a size of Qwen2.5 fits, and its tensor parallel size."""
    usual = _usual(more)
    for number in (1, 2, 4, 8, 16, 32):
        for parallel in (each for each in (1, 2, 4, 8) if each <= number):
            setup = replace(
                usual, cards_of_a_node=min(number, 8), nodes=max(1, number // 8), shards=number, tensor_parallel=parallel,
                responses=max(1, 1024 // number), step_responses=max(1, 1024 // number),
            )  # fmt: skip
            plan = Plan(shape_of(f"Qwen2.5-{size}", setup.lora_rank), setup, gb, ADAMW)
            if memory_verdict(plan).kind == FITS:
                return f"{number}" + (f" (tensor parallel {parallel})" if parallel > 1 else "")
    return "more than 32"


def print_sizes() -> None:
    """Print the smallest machines by size of the model, in full and with LoRA."""
    for size in _SIZES:
        cells = (smallest(size, more, gb) for more in ((), _LORA) for gb in (24, 48, 80))
        print(f"| {size} | {' | '.join(cells)} |")


def print_recipes(write: bool) -> None:
    """Print the line of machines of each recipe, and put the line into the recipe if `write` says so."""
    for recipe in MODELS:
        path, line = RECIPES / f"{recipe}.yaml", line_of(recipe)
        print(f"{recipe}: {line}", end="")
        if write:
            text = LINE.sub("", path.read_text())
            place = re.search(r"^# Hardware: .*\n(?:#   .*\n)*", text, re.MULTILINE)
            path.write_text(text[: place.end()] + line + text[place.end() :] if place else line + text)
