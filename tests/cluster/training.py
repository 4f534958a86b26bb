"""Start real trainings as a user does, hold them at a state, and watch their processes."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.scripts import ROOT
from tests.waiting import HANGS, wait_for

# A reward that a random model can earn.
REWARD = Path(__file__).with_name("length_reward.py")
# Seconds after which waiting for a state, or for the end of a process, counts as a hang. No test is about speed.
LIMIT = HANGS
_ATTEMPTS = itertools.count()
# Seconds that killed processes get to disappear, freeing gigabytes on a busy machine.
_SWEPT = 120.0
# Seconds between two questions: asking lists all processes of the machine, which at a shorter interval costs a third of a core.
_INTERVAL = 0.5


def overrides(directory: Path, run_dir: Path, steps: int) -> list[str]:
    """Return the smallest training: one rank, four prompts of two responses, a checkpoint after every step."""
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
        f"reward.custom_reward_function.path={REWARD}",
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
        output: its standard output and error.
        tracked: step of the checkpoint that the tracker file names, 0 without one.
        left: descriptions of the attempt's processes that are still running.
    """

    code: int
    output: str
    tracked: int
    left: tuple[str, ...]


class Attempt:
    """``verl-trgrpo train`` in a process of its own; as a context it leaves nothing running, whatever happens."""

    def __init__(self, run_dir: Path, arguments: list[str]) -> None:
        self.run_dir = run_dir
        self._output = run_dir.with_name(f"{run_dir.name}-{next(_ATTEMPTS)}.out")
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
        """Return the first descendant with ``title`` in its command line."""
        for process in sorted(self.descendants(), key=psutil.Process.create_time):
            with contextlib.suppress(psutil.Error):
                if title in " ".join(process.cmdline()):
                    return process
        return None

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until ``condition`` returns something true, and return that; the launcher has to be alive."""

        def ended():
            self.descendants()
            return self.process.poll() is not None

        try:
            return wait_for(condition, ended, _INTERVAL)
        except AssertionError:
            self._abandon()
            raise AssertionError(f"no {what}:\n{self._output.read_text()[-3000:]}") from None

    def kill(self, title: str) -> None:
        """Send SIGKILL to the process with this title."""
        self.wait_for(lambda: self.oldest(title), f"process {title}").kill()

    def kill_launcher(self) -> psutil.Process:
        """Send SIGKILL to the launcher; return the training, which goes on."""
        training = self.wait_for(lambda: self.oldest("verl.trainer.main_ppo"), "training process")
        self.process.kill()
        self.process.wait()
        return training

    def follow(self, training: psutil.Process) -> None:
        """Wait until a training without its launcher ends; what it starts counts as the attempt's."""

        def ended():
            with contextlib.suppress(psutil.NoSuchProcess):
                self._seen.update(training.children(recursive=True))
            return not training.is_running()

        wait_for(ended, pause=_INTERVAL)

    def end(self) -> Ended:
        """Wait until the launcher and all that it started have ended."""
        self.wait_for(lambda: self.process.poll() is not None, "end of the launcher")
        _, alive = psutil.wait_procs(list(self._seen), timeout=_SWEPT)
        left = tuple(filter(None, map(described, alive)))
        self._abandon()
        return Ended(self.process.wait(), self._output.read_text(), tracked_step(self.run_dir), left)

    def _abandon(self) -> None:
        """End everything, whatever the state of the attempt."""
        for process in (self.process, *self.descendants()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


class HeldSave:
    """A pipe in place of a checkpoint's file, made before the step: the save waits until :meth:`release` reads the pipe.

    In a step veRL samples and trains, then saves, then sends the weights to vLLM, then validates, then writes the metrics.

    Args:
        step: of the checkpoint.
        ranks: of the training; the pipe is rank 0's optimizer.
    """

    def __init__(self, run_dir: Path, step: int, ranks: int = 1) -> None:
        self.checkpoint = run_dir / f"global_step_{step}"
        self.name = f"actor/optim_world_size_{ranks}_rank_0.pt"
        self._file = self.checkpoint / self.name
        self._file.parent.mkdir(parents=True)
        os.mkfifo(self._file)

    def wait(self, attempt: Attempt) -> None:
        """Wait until the weights, which are saved before the optimizer, are there."""
        weights = self._file.with_name(self._file.name.replace("optim", "model"))
        attempt.wait_for(lambda: weights.exists() and weights.stat().st_size, f"weights of {self.checkpoint.name}")

    def release(self) -> None:
        """Let the save go on, and put the file where the pipe was."""
        content = self._file.read_bytes()
        self._file.unlink()
        self._file.write_bytes(content)

    def cut_short(self) -> None:
        """Leave what a killed save leaves: half a file, here of the tracked checkpoint's."""
        whole = self.checkpoint.with_name(f"global_step_{tracked_step(self.checkpoint.parent)}") / self.name
        self._file.unlink()
        self._file.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])


def doors(processes: Iterable[psutil.Process]) -> list[str]:
    """Describe each socket that another machine can reach, or that its file's mode lets another user connect to."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in process.net_connections("all"):
                name = f"{process.name()} {each.laddr}"
                if each.family == socket.AF_UNIX:
                    found += [name] if each.laddr and _others_may_write(Path(str(each.laddr))) else []
                elif each.laddr and each.status in (psutil.CONN_LISTEN, psutil.CONN_NONE):  # the second is UDP's
                    address = ipaddress.ip_address(each.laddr.ip)
                    found += [] if (getattr(address, "ipv4_mapped", None) or address).is_loopback else [name]
    return found


def _others_may_write(path: Path) -> bool:
    """Return whether modes let another user write to a file, which for a socket means to connect; one without a path is open."""
    return not path.is_absolute() or (
        path.exists()
        and bool(path.stat().st_mode & 0o002)
        and all(each.stat().st_mode & 0o001 for each in path.parents)
    )


def described(process: psutil.Process) -> str:
    """Describe a process; an empty string for one that has ended, whether or not its parent has waited for it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            return f"{process.pid} {process.status()} {' '.join(process.cmdline())[:200]}"
    return ""


def tracked_step(run_dir: Path) -> int:
    """Return the step of veRL's tracker file, 0 without one or while it is being written."""
    with contextlib.suppress(OSError, ValueError):
        return int((run_dir / "latest_checkpointed_iteration.txt").read_text())
    return 0


def resumed_from(run_dir: Path, attempt: int) -> int:
    """Return the step that veRL says it resumed from in the log of an attempt, counted from 1."""
    text = (run_dir / f"train-{attempt}.log").read_text(errors="replace")
    found = [line.rsplit(" ", 1)[1] for line in text.splitlines() if "setting global step to" in line]
    return int(found[0]) if found else 0


def steps_of(run_dir: Path, attempt: int) -> list[int]:
    """Return the training steps that an attempt logged."""
    lines = (run_dir / f"metrics-{attempt}.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines if line.startswith("{") and line.endswith("}")]
