"""The smallest real training, as a user starts it, and ways to look at its processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[3]
# Seconds that any one thing may take on a busy machine: a start of veRL with two ranks took more than 400 beside another.
LIMIT = 1200.0


def overrides(directory: Path, run_dir: Path, steps: int) -> list[str]:
    """One rank, four prompts of two responses, a checkpoint after every step."""
    return [
        "algorithm=tr_grpo",
        f"data.train_files={directory / 'train.parquet'}",
        f"data.val_files={directory / 'test.parquet'}",
        "data.train_batch_size=4",
        "data.max_prompt_length=200",
        "data.max_response_length=8",
        f"actor_rollout_ref.model.path={directory / 'model'}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "actor_rollout_ref.rollout.n=2",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.rollout.agent.num_workers=1",
        f"reward.custom_reward_function.path={ROOT / 'tests' / 'verl_plugin' / 'cpu' / 'length_reward.py'}",
        "+trainer.v1.sampler.sampler_kwargs.poll_interval=0.2",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "trainer.save_freq=1",
        f"trainer.total_training_steps={steps}",
        f"trainer.default_local_dir={run_dir}",
    ]


@dataclass(frozen=True)
class Ended:
    """An attempt that is over.

    Args:
        code: exit code of the launcher; negative for a signal.
        output: what it printed.
        tracked: step of the checkpoint that the tracker file names, 0 without one.
        left: processes of the attempt that are still there 20 seconds later, described.
    """

    code: int
    output: str
    tracked: int
    left: tuple[str, ...]


class Attempt:
    """``python -m verl_trgrpo train`` in a process of its own; as a context it leaves nothing running, whatever happens."""

    def __init__(self, run_dir: Path, arguments: list[str]) -> None:
        self.run_dir = run_dir
        self._output = run_dir.with_name(f"{run_dir.name}-{time.monotonic_ns()}.out")
        with self._output.open("wb") as file:
            command = [sys.executable, "-m", "verl_trgrpo", "train", *arguments]
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, env=os.environ.copy()
            )
        # Made once: the number of a process that is gone may be given to one of another test.
        self._launcher = psutil.Process(self.process.pid)
        self._seen: set[psutil.Process] = set()

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, *_: object) -> None:
        self._abandon()

    def descendants(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            self._seen.update(self._launcher.children(recursive=True))
        return [process for process in self._seen if process.is_running()]

    def oldest(self, title: str) -> psutil.Process | None:
        """The first descendant with ``title`` in its command line."""
        for process in sorted(self.descendants(), key=psutil.Process.create_time):
            with contextlib.suppress(psutil.Error):
                if title in " ".join(process.cmdline()):
                    return process
        return None

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        """What ``condition`` returns, once that is true."""
        deadline = time.monotonic() + LIMIT
        while not (found := condition()):
            self.descendants()
            if self.process.poll() is not None or time.monotonic() > deadline:
                self._abandon()
                raise AssertionError(f"no {what}:\n{self._output.read_text()[-3000:]}")
            time.sleep(0.05)
        return found

    def wait_for_step(self, step: int) -> None:
        """Until the checkpoint of a step, or of a later one, is complete."""
        self.wait_for(lambda: tracked_step(self.run_dir) >= step, f"checkpoint of step {step}")

    def follow(self, process: psutil.Process) -> None:
        """Count the descendants of one that has lost its launcher, too, until it ends."""
        deadline = time.monotonic() + LIMIT
        while process.is_running() and time.monotonic() < deadline:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._seen.update(process.children(recursive=True))
            time.sleep(0.1)

    def kill(self, title: str) -> None:
        """SIGKILL for the process with this title."""
        self.wait_for(lambda: self.oldest(title), f"process {title}").kill()

    def end(self) -> Ended:
        """Wait until the launcher and all that it started have ended."""
        deadline = time.monotonic() + LIMIT
        while self.process.poll() is None and time.monotonic() < deadline:
            self.descendants()
            time.sleep(0.1)
        if self.process.poll() is None:
            self._abandon()
            raise AssertionError(f"the launcher did not end:\n{self._output.read_text()[-3000:]}")
        _, alive = psutil.wait_procs(list(self._seen), timeout=20)
        left = tuple(filter(None, map(described, alive)))
        self._abandon()
        return Ended(self.process.wait(), self._output.read_text(), tracked_step(self.run_dir), left)

    def _abandon(self) -> None:
        """Leave nothing running, whatever the state of the attempt."""
        for process in (self.process, *self.descendants()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


def described(process: psutil.Process) -> str:
    """Who a process is; nothing for one that has ended, whether or not its parent has taken notice."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            return f"{process.pid} {process.status()} {' '.join(process.cmdline())[:200]}"
    return ""


def tracked_step(run_dir: Path) -> int:
    """The step of veRL's tracker file, 0 without one or while it is being written."""
    with contextlib.suppress(OSError, ValueError):
        return int((run_dir / "latest_checkpointed_iteration.txt").read_text())
    return 0


def resumed_from(run_dir: Path, attempt: int) -> int:
    """The step that veRL says it resumed from in the log of an attempt, counted from 1."""
    text = (run_dir / f"train-{attempt}.log").read_text(errors="replace")
    found = [line.rsplit(" ", 1)[1] for line in text.splitlines() if "setting global step to" in line]
    return int(found[0]) if found else 0


def steps_of(run_dir: Path, attempt: int) -> list[int]:
    """Training steps that an attempt logged."""
    lines = (run_dir / f"metrics-{attempt}.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines if line.startswith("{") and line.endswith("}")]
