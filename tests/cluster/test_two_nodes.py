"""Two Ray nodes on one machine: a rank on the second is killed, and the same command goes on from the last checkpoint.

Each node is a Ray daemon of its own with room for one rank. About ten minutes on two cores, so only when asked:
``VERL_TRGRPO_TWO_NODES=1 pytest tests/cluster/test_two_nodes.py``.
"""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile

import psutil
import pytest

from tests.cluster.training import LIMIT, Attempt, steps_of, tracked_step
from tests.waiting import wait_for
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.runs.environment import training_environment
from verl_trgrpo.runs.metrics import MetricsLog

pytestmark = pytest.mark.skipif(
    "VERL_TRGRPO_TWO_NODES" not in os.environ, reason="ten minutes; set VERL_TRGRPO_TWO_NODES=1"
)


def overrides(puzzles, run_dir):
    return [
        "kk_quickstart", f"data.train_files={puzzles / 'train.parquet'}",
        f"data.val_files={puzzles / 'test.parquet'}", "data.train_batch_size=8", f"actor_rollout_ref.model.path={CHECKPOINT}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
        "actor_rollout_ref.actor.optim.lr=5e-4",  # large enough that the score moves in two steps
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32",
        # Greedy: the same weights give the same answers.
        "actor_rollout_ref.rollout.val_kwargs.do_sample=false", "actor_rollout_ref.rollout.val_kwargs.temperature=0",
        "trainer.nnodes=2", "trainer.n_gpus_per_node=1",
        # A cluster that is there already has its slots from `ray start`.
        "ray_kwargs.ray_init.num_cpus=null", "ray_kwargs.ray_init.num_gpus=null",
        "trainer.total_training_steps=3", "trainer.save_freq=2", "trainer.test_freq=2", f"trainer.default_local_dir={run_dir}",
    ]  # fmt: skip


@pytest.fixture
def daemons(tmp_path, monkeypatch):
    """Two Ray daemons on this machine, the first one the head; all of their processes are gone afterwards."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    for name, value in training_environment(True, os.devnull).items():
        monkeypatch.setenv(name, value)
    # The token that every process of a cluster started with `ray start` has to show.
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    ray += [
        "--node-ip-address=127.0.0.1",
        "--num-cpus=32",
        "--num-gpus=1",
    ]  # logical: room for all actors, and one rank
    processes = []
    # Not below tmp_path: Ray's sockets need a path shorter than 108 bytes.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as sockets:
        head = ["--head", f"--port={address.rsplit(':')[1]}", "--include-dashboard=false", f"--temp-dir={sockets}"]
        try:
            for number, role in enumerate((head, [f"--address={address}"])):
                log = tmp_path / f"node-{number}.log"
                with log.open("wb") as file:
                    processes.append(subprocess.Popen([*ray, *role], stdout=file, stderr=subprocess.STDOUT))
                wait_for(lambda log=log: "Ray runtime started" in log.read_text(), processes[-1].poll)
            monkeypatch.setenv("RAY_ADDRESS", address)
            yield processes
        finally:
            started = [child for process in processes for child in psutil.Process(process.pid).children(recursive=True)]
            for process in [*processes, *started]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(started, timeout=LIMIT)


def ranks(daemon):
    """The training ranks below one node's daemon."""
    found = []
    for process in psutil.Process(daemon.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "ray::WorkerDict" in " ".join(process.cmdline()):
                found.append(process)
    return found


def test_a_run_on_two_nodes_that_loses_a_rank_goes_on_as_it_was(puzzles, tmp_path, daemons):
    run_dir = tmp_path / "run"
    arguments = overrides(puzzles, run_dir)
    metrics = run_dir / "metrics-1.jsonl"
    with Attempt(run_dir, arguments) as attempt:
        attempt.wait_for(lambda: metrics.exists() and 2 in steps_of(run_dir, 1), "metrics of step 2")
        assert [len(ranks(daemon)) for daemon in daemons] == [1, 1]
        ranks(daemons[1])[0].kill()
        killed = attempt.end()
    assert killed.code == 1 and killed.tracked == tracked_step(run_dir) == 2
    before = {step.number: step for step in MetricsLog(run_dir).read().line}
    with Attempt(run_dir, arguments) as attempt:
        resumed = attempt.end()
    assert resumed.code == 0, resumed.output[-3000:]
    assert steps_of(run_dir, 2) == [2, 3]
    # The validation before a resumed training has the weights that the one before the kill had.
    first = json.loads((run_dir / "metrics-2.jsonl").read_text().splitlines()[0])["data"]
    [score] = [value for name, value in first.items() if name.startswith("val-core/") and "/acc/mean@" in name]
    assert score == before[2].accuracy != before[0].accuracy
