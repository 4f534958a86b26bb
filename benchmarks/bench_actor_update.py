"""Time a whole actor update through veRL's training worker (FSDP2 engine, fp32, CPU): ``tr_grpo`` against ``grpo``.

The batch is 16 puzzles with answers, the model the shipped tiny one. Aim: at most 1.02 times the time of ``grpo``. Peak
memory is that of the tensors that one update makes.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # shares its worker with a test
from paired import compared, parser, peak_of_tensors, report

from tests.verl_plugin.cpu.invariance_worker import (
    ROWS,
    asked,
    loss_function,
    make_batch,
    rank_environment,
    training_worker,
)

LOSSES = {
    "grpo": ("algorithm=grpo",),
    "tr_grpo": ("algorithm=tr_grpo",),
    "tr_grpo token_mean": ("algorithm=tr_grpo", "actor_rollout_ref.actor.policy_loss.normalize=token_mean"),
}
MICRO_BATCH = 8


def main() -> None:
    arguments = parser(__doc__, repeats=20).parse_args()
    os.environ.update(rank_environment(1), RANK="0")
    torch.set_num_threads(arguments.threads)
    # The worker's learning rate is 0, so every update is of the same weights: trained on one batch for long, the model would
    # get ever surer of it, and gradients of subnormal numbers, which are slow to multiply.
    batch, worker = make_batch(), training_worker(())
    losses = {name: loss_function(*overrides) for name, overrides in LOSSES.items()}

    def update(name: str) -> None:
        worker.set_loss_fn(losses[name])
        worker.train_mini_batch(asked(batch, slice(0, ROWS), ROWS, MICRO_BATCH))

    calls = {name: functools.partial(update, name) for name in LOSSES}
    results = compared(calls, "grpo", arguments.repeats)
    for name, call in calls.items():
        results[name]["peak_mb"] = peak_of_tensors(call) / 1e6
    report(f"actor update, {ROWS} rows", {"forward, backward, step": results}, arguments.out)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
