"""Advantage estimator against veRL's ``grpo`` in the same run (aim: at least 5 times faster), and its peak memory."""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import torch
from paired import against, paired_times, report
from verl.trainer.ppo.core_algos import get_adv_estimator_fn


def inputs(batch: int, length: int, group: int, mask_dtype: str) -> dict:
    """Arguments of an estimator: outcome rewards, a full mask, groups labelled by uuid strings."""
    rewards = torch.zeros(batch, length)
    rewards[:, -1] = torch.randn(batch, generator=torch.Generator().manual_seed(0))
    labels = [str(uuid.UUID(int=i)) for i in range(batch // group)]
    index = np.repeat(np.array(labels, dtype=object), group)
    return {
        "token_level_rewards": rewards,
        "response_mask": torch.ones(batch, length, dtype=getattr(torch, mask_dtype)),
        "index": index,
    }


def peak_growth(arguments: argparse.Namespace) -> float:
    """Growth of a fresh process's peak memory during one call of ``tr_grpo``, in output tensors."""
    command = [
        sys.executable,
        __file__,
        "--measure-memory",
        "--shape",
        *map(str, arguments.shape),
        "--group",
        str(arguments.group),
    ]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def measure_memory(arguments: argparse.Namespace) -> None:
    batch, length = arguments.shape
    estimator = get_adv_estimator_fn("tr_grpo")
    estimator(**inputs(64, 8, 8, "float32"))  # what the first call loads does not count
    data = inputs(batch, length, arguments.group, "float32")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports (Linux)
    before = peak_resident_bytes()
    estimator(**data)
    print((peak_resident_bytes() - before) / (batch * length * 4))


def peak_resident_bytes() -> int:
    """Largest resident memory of this process since the peak was last forgotten."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=int, nargs=2, default=(8192, 1024), metavar=("BATCH", "LENGTH"))
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--mask-dtypes", nargs="+", default=["float32", "int64", "bool"])
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    parser.add_argument("--measure-memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.measure_memory:
        return measure_memory(arguments)
    results = {}
    for dtype in arguments.mask_dtypes:
        data = inputs(*arguments.shape, arguments.group, dtype)
        calls = {
            f"{'' if name == 'tr_grpo' else 'verl '}{name}": lambda name=name, data=data: get_adv_estimator_fn(name)(
                **data
            )
            for name in ("grpo", "grpo_vectorized", "tr_grpo")
        }
        times = paired_times(calls, arguments.repeats)
        results[f"{tuple(arguments.shape)}, groups of {arguments.group}, mask {dtype}"] = against(times, "verl grpo")
    peak = peak_growth(arguments)
    report("advantage estimators", results, ("torch", "verl"), arguments.out, peak_output_tensors=peak)
    print(f"\npeak memory of one tr_grpo call: {peak:.2f} output tensors")
    return None


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    main()
