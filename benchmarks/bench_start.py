"""Where the start of a training goes: one step of the quickstart, and what each of its processes took."""

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

import psutil

STEP = ("trainer.total_training_steps=1", "trainer.val_before_train=false", "trainer.test_freq=-1")
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
    """Run `command` to its end; returns its processes and the seconds until the first line of `metrics`."""
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


def short(command: str) -> str:
    """A name for a command line."""
    if named := _NAMES.search(command):
        return {"verl_trgrpo": "launcher"}.get(named[0], named[0])
    return Path(command.split()[0]).name if command else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="figures as JSON")
    parser.add_argument("overrides", nargs="*", help="of Hydra, for the training")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        command = [sys.executable, "-m", "verl_trgrpo", "quickstart", "--out", directory, *STEP]
        command += [f"trainer.default_local_dir={run}", *arguments.overrides]
        seen, first_step = watch(command, run / "metrics-1.jsonl", Path(directory) / "log")
    rows = sorted(seen.values(), key=lambda row: row.began)
    large = [row for row in rows if row.cpu >= SMALL]
    total = sum(row.cpu for row in rows)
    print(f"{'process':28}{'began, s':>10}{'core, s':>9}{'memory, MiB':>13}")
    for row in large:
        print(f"{row.title:28}{row.began:10.0f}{row.cpu:9.1f}{row.memory:13.0f}")
    print(f"{f'{len(rows) - len(large)} smaller ones':28}{'':10}{total - sum(row.cpu for row in large):9.1f}")
    print(f"first step logged after {first_step:.0f} s, with {total:.0f} s of {os.cpu_count()} cores")
    if arguments.out:
        figures = {"first_step": first_step, "cpu": total, "processes": [asdict(row) for row in rows]}
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
