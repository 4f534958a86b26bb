"""Policy loss, forward and backward, against veRL's vanilla loss and all others that veRL registers (aim: at most 1.00).

Peak memory is that of one call in a process of its own, in tensors of the batch's shape and float32.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from bench_advantages import peak_resident_bytes
from paired import against, paired_times, report
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, get_policy_loss_fn
from verl.workers.config import FSDPActorConfig, PolicyLossConfig

from verl_trgrpo.core import available_shapings, make_shaping
from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig

MEMORY_SHAPE = (64, 8192)
MEMORY_CANDIDATES = ("verl vanilla", "vanilla, naive weight", "tr_grpo sigmoid", "tr_grpo token_mean", "tr_grpo inside")
# It hands a batch on to another of the losses.
NOT_A_LOSS = {"bypass_mode"}


def candidates(batch: int, length: int, dtype: torch.dtype) -> dict[str, Callable[[], None]]:
    """Closures that compute one loss and its gradient: vanilla, vanilla times a naive weight, ours, and veRL's others."""
    generator = torch.Generator().manual_seed(0)
    old_log_prob = -3 * torch.rand(batch, length, generator=generator)
    log_prob = (old_log_prob + 0.3 * torch.randn(batch, length, generator=generator)).clamp(max=0).to(dtype)
    old_log_prob = old_log_prob.to(dtype)
    advantages = torch.randn(batch, 1, generator=generator).expand(batch, length).contiguous().to(dtype)
    mask = torch.arange(length)[None] < torch.randint(length // 8, length, (batch, 1), generator=generator)

    def closure(loss_mode: str, options: PolicyLossConfig, naive_weight: bool = False) -> Callable[[], None]:
        config = FSDPActorConfig(rollout_n=8, ppo_micro_batch_size_per_gpu=1, strategy="fsdp2", policy_loss=options)

        def call() -> None:
            x = log_prob.clone().requires_grad_()
            scaled = advantages
            if naive_weight:
                weight = (2.0 * (torch.sigmoid(9.0 * x.detach().exp()) - 0.25)).clamp(1.0, 1.4)
                scaled = advantages * weight
            loss, _ = get_policy_loss_fn(loss_mode)(old_log_prob, x, scaled, mask, "token-mean", config)
            loss.backward()

        return call

    found = {
        "verl vanilla": closure("vanilla", PolicyLossConfig()),
        "vanilla, naive weight": closure("vanilla", PolicyLossConfig(), naive_weight=True),
    }
    for name in (name for name in available_shapings() if make_shaping(name).probs_only):
        found[f"tr_grpo {name}"] = closure("tr_grpo", TRGRPOPolicyLossConfig(shaping=make_shaping(name)))
    for key, value in (("normalize", "token_mean"), ("placement", "inside")):
        found[f"tr_grpo {value}"] = closure("tr_grpo", TRGRPOPolicyLossConfig(**{key: value}))
    for name in sorted({*POLICY_LOSS_REGISTRY} - {"vanilla", "tr_grpo", "aspo"} - NOT_A_LOSS):
        more = {"dro_beta": 1.0} if name == "dro" else {}
        found[f"verl {name}"] = closure(name, PolicyLossConfig(loss_mode=name, **more))
    return found


def measure_memory(name: str) -> float:
    """Growth of this process's peak memory during one call, in float32 tensors of `MEMORY_SHAPE`."""
    call = candidates(*MEMORY_SHAPE, torch.float32)[name]
    call()  # what the first call loads does not count
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far (Linux)
    before = peak_resident_bytes()
    call()
    return (peak_resident_bytes() - before) / (4 * MEMORY_SHAPE[0] * MEMORY_SHAPE[1])


def peaks() -> dict[str, float]:
    """`measure_memory` of some candidates, each in a process whose allocator gives memory back at once."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    found = {}
    for name in MEMORY_CANDIDATES:
        command = [sys.executable, __file__, "--measure-memory", name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found[name] = float(done.stdout.split()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shape", type=int, nargs=2, default=(64, 2048), metavar=("BATCH", "LENGTH"))
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", action="store_true", help="also measure peak memory")
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    parser.add_argument("--measure-memory", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.measure_memory:
        print(measure_memory(arguments.measure_memory))
        return
    results = {
        f"{tuple(arguments.shape)} {dtype}": against(
            paired_times(candidates(*arguments.shape, getattr(torch, dtype)), arguments.repeats), "verl vanilla"
        )
        for dtype in arguments.dtypes
    }
    memory = peaks() if arguments.memory else {}
    title = "policy loss, forward + backward, metrics included"
    report(title, results, ("torch", "verl"), arguments.out, peak_tensors=memory)
    if memory:
        print(f"\npeak memory of one call, in float32 tensors of {MEMORY_SHAPE}")
        for name, peak in memory.items():
            print(f"{name:24}{peak:11.2f}")


if __name__ == "__main__":
    main()
