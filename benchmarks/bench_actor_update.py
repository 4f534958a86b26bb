"""A whole actor update through veRL's training worker (FSDP2 engine, fp32, CPU): ``tr_grpo`` against ``grpo``.

The batch is 16 puzzles with answers, the model the shipped tiny one. Aim: at most 1.02 times the time of ``grpo``. Peak
memory is that of one update above what the process held before it.
"""

from __future__ import annotations

import argparse
import functools
import os
import socket
import statistics
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # shares its worker with a test
from bench_advantages import peak_resident_bytes
from paired import against, paired_times, report

from tests.verl_plugin.cpu.invariance_worker import (
    ROWS,
    Case,
    loss_function,
    make_batch,
    micro_batches,
    own_share,
    training_worker,
)
from verl_trgrpo.runs.environment import training_environment
from verl_trgrpo.tiny.puzzles import CHECKPOINT

LOSSES = {
    "grpo": ("algorithm=grpo",),
    "tr_grpo": ("algorithm=tr_grpo",),
    "tr_grpo token_mean": ("algorithm=tr_grpo", "actor_rollout_ref.actor.policy_loss.normalize=token_mean"),
}

# Every update is of the same weights: trained on one batch for long, the model would get ever surer of it, and gradients
# of subnormal numbers, which are slow to multiply.
FROZEN = ("actor_rollout_ref.actor.optim.lr=0.0",)


def become_one_rank() -> None:
    """Give this process what a launcher would: veRL's worker starts a process group of one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(training_environment(True, os.devnull))
    os.environ.update({"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--micro-batch", type=int, default=8, help="rows of a micro-batch (default 8)")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    arguments = parser.parse_args()
    become_one_rank()
    torch.set_num_threads(arguments.threads)
    batch, worker = make_batch(CHECKPOINT), training_worker(CHECKPOINT, FROZEN)
    cases = {name: Case(loss, micro_batches(arguments.micro_batch)) for name, loss in LOSSES.items()}
    losses = {name: loss_function(CHECKPOINT, case) for name, case in cases.items()}

    def update(name: str) -> None:
        worker.set_loss_fn(losses[name])
        worker.train_mini_batch(own_share(worker, batch, cases[name]))

    calls = {name: functools.partial(update, name) for name in LOSSES}
    results = against(paired_times(calls, arguments.repeats), "grpo")
    for name, call in calls.items():
        results[name]["peak_mb"] = statistics.median(_peak_growth(call) for _ in range(5)) / 1e6
    report(f"actor update, {ROWS} rows", {"forward, backward, step": results}, ("torch", "verl"), arguments.out)
    torch.distributed.destroy_process_group()


def _peak_growth(call) -> int:
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far (Linux)
    before = peak_resident_bytes()
    call()
    return peak_resident_bytes() - before


if __name__ == "__main__":
    main()
