"""Layouts of a micro-batch on a CPU: an update of a small language model through veRL's training worker.

A mini-batch of `verl-trgrpo small-lm`, eight answers of 30 to 73 tokens to each of four prompts of 100, and a model of
SmolLM2-135M's shape with random weights, in bfloat16. With transformers' attention packed sequences attend to their whole
micro-batch, behind a mask. Of packed sequences the output layer sees responses alone, but with fused kernels, which compute it
for all tokens, piece by piece, and once more in the backward pass.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # shares its worker with a test
from bench_attention import SHAPE
from paired import compared, parser, report
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.verl_plugin.cpu.invariance_worker import asked, loss_function, rank_environment, training_worker
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.runs.compose import quoted

PROMPTS, GROUP, PROMPT = 4, 8, 100
ROWS = PROMPTS * GROUP
PACKED, FUSED = "actor_rollout_ref.model.use_remove_padding", "actor_rollout_ref.model.use_fused_kernels"
ATTENTION = "actor_rollout_ref.model.override_config.attn_implementation"
# Responses in a pass, and overrides; packed_cpu is the platform's own attention, sdpa that of transformers.
LAYOUTS = {
    "padded": (8, f"{PACKED}=false", f"{ATTENTION}=sdpa"),
    "packed, behind a mask": (4, f"{PACKED}=true", f"{ATTENTION}=sdpa"),
    "packed, behind a mask, fused kernels": (4, f"{PACKED}=true", f"{ATTENTION}=sdpa", f"{FUSED}=true"),
    "packed": (8, f"{PACKED}=true", f"{ATTENTION}=packed_cpu"),
    "packed, 16 in a pass": (16, f"{PACKED}=true", f"{ATTENTION}=packed_cpu"),
}
ENGINE = "actor_rollout_ref.actor.fsdp_config"
BFLOAT16 = (f"{ENGINE}.dtype=bfloat16", f"{ENGINE}.mixed_precision.param_dtype=bf16")


def make_batch() -> dict[str, list[torch.Tensor]]:
    """Random tokens: what they are makes no difference to the time."""
    rng, batch = random.Random(0), {}
    for _ in range(ROWS):
        prompt, response = (torch.randint(10, 300, (n,)) for n in (PROMPT, rng.randint(30, 73)))
        tokens, ones = torch.cat([prompt, response]), torch.ones(len(response))
        values = {
            "input_ids": tokens, "position_ids": torch.arange(len(tokens)), "prompts": prompt, "responses": response,
            "response_mask": ones, "loss_mask": ones, "old_log_probs": -ones, "ref_log_prob": -ones,
            "advantages": ones * rng.choice([-1.0, 1.0]),
        }  # fmt: skip
        for name, value in values.items():
            batch.setdefault(name, []).append(value)
    return batch


def update(worker: Any, batch: dict[str, list[torch.Tensor]], micro_batch: int) -> None:
    worker.train_mini_batch(asked(batch, slice(0, ROWS), ROWS, micro_batch))


def main() -> None:
    arguments = parser(__doc__, repeats=3).parse_args()
    os.environ.update(rank_environment(1), RANK="0")
    batch, calls = make_batch(), {}
    with tempfile.TemporaryDirectory() as directory:
        AutoModelForCausalLM.from_config(SHAPE).save_pretrained(directory)
        AutoTokenizer.from_pretrained(CHECKPOINT).save_pretrained(directory)
        for name, (micro_batch, *layout) in LAYOUTS.items():
            words = (f"actor_rollout_ref.model.path={quoted(directory)}", *layout, *BFLOAT16)
            worker = training_worker(words)
            worker.set_loss_fn(loss_function(*words))
            calls[name] = partial(update, worker, batch, micro_batch)
    torch.set_num_threads(arguments.threads)  # the worker has taken all cores
    results = compared(calls, "padded", arguments.repeats, warm_up=1)
    report(f"update, {ROWS} responses", {"forward, backward, step": results}, arguments.out)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
