"""Measure the start of a training: one step of the quickstart, and the time of each of its processes.

python benchmarks/bench_start.py                          (one step, to its end)
python benchmarks/bench_start.py --starts 5               (five starts, each stopped when veRL's driver starts Ray)
python benchmarks/bench_start.py --starts 5 --than ../before   (against another checkout, in turns)
"""

from __future__ import annotations

import argparse
import contextlib
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
from typing import Any

import psutil

from verl_trgrpo.demos.puzzles import CHECKPOINT, build_dataset

ROOT = Path(__file__).resolve().parents[1]
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


def watch(command: list[str], log: Path, checkout: Path = ROOT, until: str = "", pause: float = 0.5) -> list[Seen]:
    """Run `command` with the package of `checkout` to its end, or until it has started a process named `until`.

    Returns:
        its processes in the order in which they began.
    """
    seen: dict[int, Seen] = {}
    began = time.time()
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    with log.open("wb") as output:
        launcher = psutil.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=checkout)
    try:
        while launcher.poll() is None:
            for process in [launcher, *launcher.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    row = seen.setdefault(process.pid, Seen("", process.create_time() - began))
                    # Titles change: a worker of Ray takes the name of its actor.
                    row.title = short(" ".join(process.cmdline())) or row.title
                    used = process.cpu_times()
                    row.cpu = used.user + used.system
                    row.memory = max(row.memory, process.memory_info().rss / 2**20)
            if until and any(row.title == until for row in seen.values()):
                break
            time.sleep(pause)
    finally:
        if (ended := launcher.poll()) is None:
            launcher.terminate()
            launcher.wait()
    if ended or (until and ended is not None):
        raise SystemExit(f"the training ended with exit code {ended}:\n{log.read_text()[-3000:]}")
    return sorted(seen.values(), key=lambda row: row.began)


def short(command: str) -> str:
    """Return a name for a command line."""
    if named := _NAMES.search(command):
        return {"verl_trgrpo": "launcher"}.get(named[0], named[0])
    return Path(command.split()[0]).name if command else ""


def compare_starts(command: list[str], starts: int, other: Path | None, log: Path) -> dict[str, list[list[float]]]:
    """Print and return seconds to Ray's start and seconds of a core, of this checkout and of another one in turns."""
    checkouts = {"this checkout": ROOT} | ({"the other": other.resolve()} if other else {})
    figures: dict[str, list[list[float]]] = {name: [] for name in checkouts}
    for turn in range(starts + 1):
        for name, checkout in checkouts.items():
            rows = watch(command, log, checkout, RAY, pause=0.05)
            ray = next(row for row in rows if row.title == RAY)
            if turn:  # the first start reads the files from disk
                figures[name].append([ray.began, sum(row.cpu for row in rows) - ray.cpu])
    middle = {name: [median(values) for values in zip(*pairs, strict=True)] for name, pairs in figures.items()}
    for name, (seconds, cpu) in middle.items():
        print(f"{name:15}Ray starts after {seconds:5.1f} s, {cpu:5.1f} s of a core (medians of {starts})")
    if other is not None:
        here, there = middle.values()
        print(f"ratio          {here[0] / there[0]:.2f} in seconds, {here[1] / there[1]:.2f} in seconds of a core")
    return figures


def one_step(command: list[str], metrics: Path, log: Path) -> dict[str, Any]:
    """Print a table of the processes of a training of one step, and return its figures."""
    began = time.time()
    rows = watch(command, log)
    first_step, total = metrics.stat().st_mtime - began, sum(row.cpu for row in rows)
    large = [row for row in rows if row.cpu >= SMALL]
    print(f"{'process':28}{'began, s':>10}{'core, s':>9}{'memory, MiB':>13}")
    for row in large:
        print(f"{row.title:28}{row.began:10.0f}{row.cpu:9.1f}{row.memory:13.0f}")
    print(f"{f'{len(rows) - len(large)} smaller ones':28}{'':10}{total - sum(row.cpu for row in large):9.1f}")
    print(f"first step logged after {first_step:.0f} s, with {total:.0f} s of {os.cpu_count()} cores")
    return {"first_step": first_step, "cpu": total, "processes": [asdict(row) for row in rows]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE", help="figures as JSON")
    parser.add_argument("--starts", type=int, default=0, metavar="N", help="measure N starts up to that of Ray")
    parser.add_argument("--than", type=Path, metavar="DIR", help="with --starts: another checkout to compare with")
    parser.add_argument("overrides", nargs="*", help="of Hydra, for the training")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        data, run, log = (Path(directory) / name for name in ("data", "run", "log"))
        build_dataset(data)
        command = [
            sys.executable, "-m", "verl_trgrpo", "train", "kk_quickstart", *STEP,
            f"data.train_files={data / 'train.parquet'}", f"data.val_files={data / 'test.parquet'}",
            f"actor_rollout_ref.model.path={CHECKPOINT}", f"trainer.default_local_dir={run}", *arguments.overrides,
        ]  # fmt: skip
        figures: dict[str, Any]
        if arguments.starts:
            figures = compare_starts(command, arguments.starts, arguments.than, log)
        else:
            figures = one_step(command, run / "metrics-1.jsonl", log)
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
