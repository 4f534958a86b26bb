"""Public shapes of models, and plans of composed runs with them."""

import dataclasses
import functools
import json
from pathlib import Path

from tests.conftest import composed
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.memory.plan import Plan
from verl_trgrpo.memory.setup import Setup, setup_of
from verl_trgrpo.memory.shape import ModelShape, model_shape

ROOT = Path(__file__).parents[2]
MODELS = json.loads((ROOT / "studies/memory/models.json").read_text())
# AdamW: two states of a parameter's size, and one copy in its step; test_shape.py asks torch.
ADAMW = (2.0, 1.0)
A = "actor_rollout_ref"
# 7B on four cards of 80 GB, whole responses packed.
USUAL = (
    "algorithm.adv_estimator=grpo", "trainer.n_gpus_per_node=4", "trainer.save_freq=10", "data.train_batch_size=64",
    "data.max_prompt_length=1024", "data.max_response_length=3072", f"{A}.rollout.n=8", f"{A}.rollout.name=vllm",
    f"{A}.rollout.max_model_len=4096", f"{A}.rollout.tensor_model_parallel_size=1",
    f"{A}.rollout.gpu_memory_utilization=0.5", f"{A}.actor.ppo_mini_batch_size=64",
    f"{A}.actor.use_dynamic_bsz=true", f"{A}.actor.ppo_max_token_len_per_gpu=16384",
)  # fmt: skip


@functools.cache
def shape_of(name: str, rank: int = 0, targets: str | tuple[str, ...] = "all-linear") -> ModelShape:
    chosen = targets if isinstance(targets, str) else list(targets)
    return model_shape(MODELS[name], {"r": rank, "target_modules": chosen} if rank else None)


def setup(*overrides: str) -> Setup:
    view = RunView(composed([*USUAL, *overrides], "ppo_trainer"))
    return setup_of(view.__getitem__, view.has_reference, view.needs_critic)


def plan(*overrides: str, name: str = "Qwen2.5-7B", gb: float = 80, **changes) -> Plan:
    made = dataclasses.replace(setup(*overrides), **changes)
    return Plan(shape_of(name, made.lora_rank), made, gb, ADAMW)


def totals(found: Plan, mean: float | None = None) -> dict[str, float]:
    return {phase.name: phase.total for phase in found.at(mean or found.setup.longest)}
