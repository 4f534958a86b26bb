"""Measure the start of a training: one step of the quickstart, and the time of each of its processes.

python benchmarks/bench_start.py                          (one step, to its end)
python benchmarks/bench_start.py --starts 5               (five starts, each stopped when veRL's driver starts Ray)
python benchmarks/bench_start.py --starts 5 --than ../before   (against another checkout, in turns)
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import psutil

from verl_trgrpo.demos.puzzles import CHECKPOINT, build_dataset

STEP = ("trainer.total_training_steps=1", "trainer.val_before_train=false", "trainer.test_freq=-1")
# The first process that Ray starts, once veRL's main has composed its configuration and checked it.
RAY = "gcs_server"
# Processes below this many seconds of a core are counted together.
SMALL = 3.0
_NAMES = re.compile(r"(?:ray|VLLM)::\w+|verl_trgrpo|verl\.trainer\.\w+|vllm\.[\w.]+|raylet|gcs_server|cc1plus")


@dataclass
class Seen:
    """A process: seconds after the launcher at which it was `began`, seconds of a core, and MiB of memory at most."""

    title: str
    began: float
    cpu: float = 0.0
    memory: float = 0.0


def watch(command: list[str], metrics: Path, log: Path) -> tuple[dict[int, Seen], float]:
    """Run `command` to its end; return its processes and the seconds until the first line of `metrics`."""
    seen: dict[int, Seen] = {}
    first_step = float("nan")
    began = time.time()
    with log.open("wb") as output:
        launcher = psutil.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    while launcher.poll() is None:
        for process in [launcher, *launcher.children(recursive=True)]:
            try:
                used, title = process.cpu_times(), " ".join(process.cmdline())
                row = seen.setdefault(process.pid, Seen("", process.create_time() - began))
                # Titles change: a worker of Ray takes the name of its actor.
                row.title = short(title) or row.title
                row.cpu = used.user + used.system
                row.memory = max(row.memory, process.memory_info().rss / 2**20)
            except psutil.Error:
                continue
        if first_step != first_step and metrics.exists() and metrics.stat().st_size:
            first_step = time.time() - began
        time.sleep(0.5)
    if launcher.wait():
        raise SystemExit(f"the quickstart failed:\n{log.read_text()[-3000:]}")
    return seen, first_step


def seconds_to_driver(command: list[str], checkout: Path, log: Path) -> tuple[float, float]:
    """Run `command` with the package of `checkout` until veRL's driver starts Ray, and stop it.

    Returns:
        Seconds until then, and seconds of a core that the launcher and its children had used.
    """
    began, cpu = time.time(), {}
    with log.open("wb") as output:
        launcher = psutil.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": str(checkout)},
            cwd=checkout,
        )
    try:
        while launcher.poll() is None:
            for process in [launcher, *launcher.children(recursive=True)]:
                try:
                    used, name = process.cpu_times(), process.name()
                except psutil.Error:
                    continue
                if name == RAY:
                    return process.create_time() - began, sum(cpu.values())
                cpu[process.pid] = used.user + used.system
            time.sleep(0.05)
    finally:
        if launcher.poll() is None:
            launcher.terminate()
            launcher.wait()
    raise SystemExit(f"the training ended before it started Ray:\n{log.read_text()[-3000:]}")


def train_command(data: Path, overrides: list[str]) -> list[str]:
    """Build the quickstart's data and return the command ``verl-trgrpo train`` of its first step."""
    build_dataset(data)
    files = [f"data.train_files={data / 'train.parquet'}", f"data.val_files={data / 'test.parquet'}"]
    model = f"actor_rollout_ref.model.path={CHECKPOINT}"
    options = ["--config-name", "kk_quickstart", *STEP, *files, model, *overrides]
    return [sys.executable, "-m", "verl_trgrpo", "train", *options]


def short(command: str) -> str:
    """Return a name for a command line."""
    if named := _NAMES.search(command):
        return {"verl_trgrpo": "launcher"}.get(named[0], named[0])
    return Path(command.split()[0]).name if command else ""


def compare_starts(command: list[str], starts: int, other: Path | None, log: Path) -> dict[str, list[list[float]]]:
    """Print and return seconds to Ray's start and seconds of a core, of this checkout and of another one in turns."""
    checkouts = {"this checkout": Path(__file__).resolve().parents[1]}
    if other is not None:
        checkouts["the other"] = other.resolve()
    figures: dict[str, list[list[float]]] = {name: [] for name in checkouts}
    for turn in range(starts + 1):
        for name, checkout in checkouts.items():
            pair = seconds_to_driver(command, checkout, log)
            if turn:  # the first start reads the files from disk
                figures[name].append(list(pair))
    middle = {name: [median(values) for values in zip(*pairs, strict=True)] for name, pairs in figures.items()}
    for name, (seconds, cpu) in middle.items():
        print(f"{name:15}Ray starts after {seconds:5.1f} s, {cpu:5.1f} s of a core (medians of {starts})")
    if other is not None:
        here, there = middle.values()
        print(f"ratio          {here[0] / there[0]:.2f} in seconds, {here[1] / there[1]:.2f} in seconds of a core")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE", help="figures as JSON")
    parser.add_argument("--starts", type=int, default=0, metavar="N", help="measure N starts up to that of Ray")
    parser.add_argument("--than", type=Path, metavar="DIR", help="with --starts: another checkout to compare with")
    parser.add_argument("overrides", nargs="*", help="of Hydra, for the training")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run, log = Path(directory) / "run", Path(directory) / "log"
        command = [sys.executable, "-m", "verl_trgrpo", "quickstart", "--out", directory, *STEP]
        command += [f"trainer.default_local_dir={run}", *arguments.overrides]
        if arguments.starts:
            command = train_command(
                Path(directory) / "data", [f"trainer.default_local_dir={run}", *arguments.overrides]
            )
            figures: dict[str, object] = dict(compare_starts(command, arguments.starts, arguments.than, log))
        else:
            seen, first_step = watch(command, run / "metrics-1.jsonl", log)
            total = print_processes(list(seen.values()), first_step)
            figures = {"first_step": first_step, "cpu": total, "processes": [asdict(row) for row in seen.values()]}
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")


def print_processes(rows: list[Seen], first_step: float) -> float:
    """Print a table of processes and return the seconds of a core that all of them used."""
    rows = sorted(rows, key=lambda row: row.began)
    large = [row for row in rows if row.cpu >= SMALL]
    total = sum(row.cpu for row in rows)
    print(f"{'process':28}{'began, s':>10}{'core, s':>9}{'memory, MiB':>13}")
    for row in large:
        print(f"{row.title:28}{row.began:10.0f}{row.cpu:9.1f}{row.memory:13.0f}")
    print(f"{f'{len(rows) - len(large)} smaller ones':28}{'':10}{total - sum(row.cpu for row in large):9.1f}")
    print(f"first step logged after {first_step:.0f} s, with {total:.0f} s of {os.cpu_count()} cores")
    return total


if __name__ == "__main__":
    main()
