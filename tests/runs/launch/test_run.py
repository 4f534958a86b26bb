"""Bookkeeping around a run: finished runs, abandoned attempts, failures in plain words."""

import functools
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
from omegaconf import OmegaConf

from tests.runs.launch.test_configuration import recipe  # noqa: F401  (a fixture)
from verl_trgrpo.runs.launch.child import TrainingProcess
from verl_trgrpo.runs.launch.configuration import ConfigurationError, make_plan
from verl_trgrpo.runs.launch.log_watch import LogWatch
from verl_trgrpo.runs.launch.progress import Progress
from verl_trgrpo.runs.launch.run import (
    TrainingFailedError,
    _bookkeeping,
    _failure,
    _next_attempt,
    _set_aside,
    latest_checkpoint,
    run_training,
)
from verl_trgrpo.runs.launch.same_run import check_same_run
from verl_trgrpo.runs.metrics import MetricsLog, Step
from verl_trgrpo.tiny.puzzles import CHECKPOINT


def test_latest_checkpoint_believes_the_tracker_and_the_directory(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("7")
    assert latest_checkpoint(tmp_path) is None  # the tracker alone is not a checkpoint
    (tmp_path / "global_step_7").mkdir()
    assert latest_checkpoint(tmp_path) == tmp_path / "global_step_7"


def test_a_finished_run_is_only_shown(recipe, tmp_path):  # noqa: F811
    run_dir = tmp_path / "run"
    (run_dir / "global_step_3").mkdir(parents=True)
    (run_dir / "latest_checkpointed_iteration.txt").write_text("3")
    record = {"step": 3, "data": {"critic/score/mean": 1.5, "val-core/kk/acc/mean@1": 0.25}}
    (run_dir / "metrics-1.jsonl").write_text(json.dumps(record) + "\n")
    outcome = run_training([*recipe, "trainer.total_training_steps=3"], stream=io.StringIO())
    assert outcome.log_file is None
    assert outcome.summary["accuracy_last"] == 0.25
    assert outcome.curves == run_dir / "curves.png" and outcome.curves.is_file()
    assert json.loads((run_dir / "summary.json").read_text()) == outcome.summary
    assert not list(run_dir.glob("train-*.log"))


def test_metrics_of_an_abandoned_attempt_are_set_aside(tmp_path):
    (tmp_path / "metrics-1.jsonl").write_text('{"step": 5, "data": {"critic/score/mean": 9.0}}\n')
    (tmp_path / "train-1.log").touch()
    (tmp_path / "metrics-notes.jsonl").touch()  # somebody's own file does no harm
    assert len(MetricsLog(tmp_path).read()) == 1
    assert _next_attempt(tmp_path) == 2
    _set_aside(tmp_path)
    assert MetricsLog(tmp_path).read() == []
    assert _next_attempt(tmp_path) == 2, "the log of the first attempt must not be overwritten"
    assert {path.name for path in tmp_path.iterdir()} == {"metrics-1.jsonl.old", "train-1.log", "metrics-notes.jsonl"}


def test_another_configuration_does_not_continue_a_run(recipe, tmp_path):  # noqa: F811
    run_dir = tmp_path / "run"
    (run_dir / "global_step_3").mkdir(parents=True)
    (run_dir / "latest_checkpointed_iteration.txt").write_text("3")
    first = make_plan("trgrpo_trainer", [*recipe, "trainer.total_training_steps=3"], on_cpu=True)
    OmegaConf.save(first.config, run_dir / "config.yaml")
    other = [*recipe, "trainer.total_training_steps=9", "actor_rollout_ref.actor.policy_loss.shaping.tau=6"]
    with pytest.raises(ConfigurationError, match=r"shaping.tau: None there, 6 asked for.*resume_mode=disable"):
        run_training(other, stream=io.StringIO())
    # Longer, or validated more often, is the same run.
    longer = make_plan(
        "trgrpo_trainer", [*recipe, "trainer.total_training_steps=9", "trainer.test_freq=1"], on_cpu=True
    )
    check_same_run(longer.config, run_dir / "config.yaml")


def test_starting_over_leaves_no_checkpoint_of_another_configuration(recipe, tmp_path, fake_driver):  # noqa: F811
    """The second run ends before its first save; it must not go on from, or be shown as, the first one."""
    run_dir, stream = tmp_path / "run", io.StringIO()
    for step in (2, 3):
        (run_dir / f"global_step_{step}").mkdir(parents=True)
    (run_dir / "latest_checkpointed_iteration.txt").write_text("3")
    recipe = [*recipe, "trainer.total_training_steps=3"]
    OmegaConf.save(make_plan("trgrpo_trainer", recipe, on_cpu=True).config, run_dir / "config.yaml")
    fake_driver("echo killed at step 1; exit 1")
    other = [*recipe, "actor_rollout_ref.actor.optim.lr=5e-5"]
    scratch = r"(?s)killed at step 1.*no checkpoint was saved .*so the same command starts from scratch.*train-1\.log"
    with pytest.raises(TrainingFailedError, match=scratch):
        run_training([*other, "trainer.resume_mode=disable"], stream=stream)
    assert OmegaConf.load(run_dir / "config.yaml").actor_rollout_ref.actor.optim.lr == 5e-5
    assert f"note: starting over; the earlier checkpoints are now in {run_dir / 'abandoned-1'}" in stream.getvalue()
    assert latest_checkpoint(run_dir / "abandoned-1") == run_dir / "abandoned-1" / "global_step_3"
    assert (run_dir / "abandoned-1" / "global_step_2").is_dir()
    assert not list(run_dir.glob("global_step_*")) and latest_checkpoint(run_dir) is None
    with pytest.raises(TrainingFailedError, match=r"(?s)killed at step 1.*from scratch.*train-2\.log"):
        run_training(other, stream=stream)
    assert (run_dir / "train-2.log").is_file() and not (run_dir / "abandoned-2").exists()


@pytest.mark.parametrize("key", ["path", "lora_adapter_path"])
@pytest.mark.parametrize("place", ["", "merged_hf"])
def test_starting_over_does_not_move_away_what_the_run_needs(recipe, tmp_path, key, place):  # noqa: F811
    needed = tmp_path / "run" / "global_step_3" / place
    shutil.copytree(CHECKPOINT, needed)
    with pytest.raises(ConfigurationError, match=rf"model\.{key}=.* is in a checkpoint.*default_local_dir"):
        run_training(
            [*recipe, f"actor_rollout_ref.model.{key}={needed}", "trainer.resume_mode=disable"], stream=io.StringIO()
        )
    assert needed.is_dir() and not (tmp_path / "run" / "config.yaml").exists()


def test_a_driver_that_hangs_without_its_engine_is_ended(recipe, monkeypatch, fake_driver):  # noqa: F811
    fake_driver("echo vllm.v1.engine.exceptions.EngineDeadError; exec sleep 900")
    monkeypatch.setattr("verl_trgrpo.runs.launch.run.LogWatch", functools.partial(LogWatch, grace=0.0))
    dead = r"(?s)engine process died .* and veRL did not end\..*Once that is mended, no checkpoint.*train-1\.log"
    with pytest.raises(TrainingFailedError, match=dead):
        run_training([*recipe, "trainer.total_training_steps=3"], stream=io.StringIO())
    assert not [child for child in psutil.Process().children(recursive=True) if "sleep" in child.name()]


@pytest.mark.parametrize(
    ("logger", "expected"),
    [("null", "[file]"), ("wandb", "[wandb,file]"), ("[console,file]", "[console,file]"), ("[]", "[file]")],
)
def test_the_file_logger_comes_with_whatever_the_user_logs_to(recipe, tmp_path, logger, expected):  # noqa: F811
    plan = make_plan("trgrpo_trainer", [*recipe, f"trainer.logger={logger}"], on_cpu=True)
    assert _bookkeeping(plan, tmp_path / "metrics-1.jsonl")[0] == f"trainer.logger={expected}"


def test_the_retrieval_server_may_have_another_address_when_a_run_goes_on(recipe, tmp_path):  # noqa: F811
    url, topk = (f"actor_rollout_ref.rollout.custom.search.{key}" for key in ("url", "topk"))
    searching = [*recipe, "agent=search_tags"]
    first = make_plan("trgrpo_trainer", [*searching, f"{url}=http://127.0.0.1:8000"], on_cpu=True)
    OmegaConf.save(first.config, tmp_path / "config.yaml")
    moved = make_plan("trgrpo_trainer", [*searching, f"{url}=http://127.0.0.1:8001"], on_cpu=True)
    check_same_run(moved.config, tmp_path / "config.yaml")
    other = make_plan("trgrpo_trainer", [*searching, f"{topk}=9"], on_cpu=True)
    with pytest.raises(ConfigurationError, match=r"search\.topk: 3 there, 9 asked for"):
        check_same_run(other.config, tmp_path / "config.yaml")


def test_a_run_directory_that_cannot_be_written_is_named(recipe, tmp_path):  # noqa: F811
    (tmp_path / "file").touch()
    with pytest.raises(
        ConfigurationError, match=r"trainer.default_local_dir=.*file.*cannot be written.*another directory"
    ):
        run_training([*recipe, f"trainer.default_local_dir={tmp_path / 'file'}"], stream=io.StringIO())


LOG = """\
ImportError: flash_attn is not installed, falling back
Exiting the warm-up phase
\x1b[36m(TaskRunnerV1 pid=1)\x1b[0m WARNING: nothing to see
\x1b[36m(Worker pid=2)\x1b[0m Exception raised in creation task: The actor died because of an error
\x1b[36m(Worker pid=2)\x1b[0m Traceback (most recent call last):
\x1b[36m(Worker pid=2)\x1b[0m ray.exceptions.ActorDiedError: The actor died
\x1b[36m(Worker pid=2)\x1b[0m     raise ValueError('tau')
\x1b[36m(Worker pid=2)\x1b[0m ValueError: tau
ray.exceptions.RayTaskError(KeyError): ray::run()
KeyError: 'consequence'
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LOG, ["ValueError: tau", "(finally: KeyError: 'consequence')"]),
        ("torch.cuda.OutOfMemoryError: no memory\n", ["torch.cuda.OutOfMemoryError: no memory"]),
        ("one\ntwo\n", ["one\ntwo"]),
        ("", ["no output"]),
    ],
)
def test_failures_name_the_cause_and_the_log(tmp_path, text, expected):
    log_file = tmp_path / "train-1.log"
    log_file.write_text(text)
    message = _failure(log_file, 1)
    assert all(part in message for part in expected)
    assert "ray.exceptions" not in message and "flash_attn" not in message


def test_the_child_runs_the_hosts_main_and_reports_its_exit_code(tmp_path):
    ticks = []
    with TrainingProcess(["--cfg", "hydra"], dict(os.environ), tmp_path / "good.log") as good:
        assert good.wait(lambda: ticks.append(1), seconds=0.1) == 0
    assert ticks and "hydra:" in (tmp_path / "good.log").read_text()
    with TrainingProcess(["no.such.key=1"], dict(os.environ), tmp_path / "bad.log") as bad:
        assert bad.wait(lambda: None, seconds=0.1) != 0
    assert "no.such.key" in (tmp_path / "bad.log").read_text()


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, lambda *_: print("asked to end", flush=True))
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
daemon = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"])
print(daemon.pid, flush=True)
time.sleep(900)
"""

WAITER = """
import os, sys
from pathlib import Path
from verl_trgrpo.runs.launch.child import TrainingProcess
sys.executable = sys.argv[1]
with TrainingProcess([], dict(os.environ), Path(sys.argv[2])) as child:
    child.wait(lambda: print("watching", flush=True), seconds=0.1)
"""


@pytest.mark.parametrize(
    "numbers", [(signal.SIGTERM, signal.SIGINT), (signal.SIGHUP, signal.SIGTERM), (signal.SIGINT,) * 2]
)
def test_no_signal_leaves_anything_running(tmp_path, numbers):
    """Even a driver that signals do not end, and a daemon it started, are gone after the second, impatient signal."""
    driver = tmp_path / "driver"
    driver.write_text(f"#!{sys.executable}\n{STUBBORN}")
    driver.chmod(0o755)
    log = tmp_path / "log"
    waiter = subprocess.Popen(
        [sys.executable, "-c", WAITER, driver, log], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # under nohup it is ignored
    )  # fmt: skip

    def wait_for(condition):
        while not condition():
            assert waiter.stdout.readline() == b"watching\n", waiter.stderr.read()

    wait_for(lambda: log.exists() and log.read_text().endswith("\n"))
    started = psutil.Process(waiter.pid).children(recursive=True)
    assert int(log.read_text()) in {process.pid for process in started} and len(started) >= 2
    # The second look from here on began after the daemon was there.
    assert [waiter.stdout.readline() for _ in range(2)] == [b"watching\n"] * 2
    waiter.send_signal(numbers[0])
    while "asked to end" not in log.read_text():
        assert waiter.poll() is None, waiter.stderr.read()
        time.sleep(0.05)
    waiter.send_signal(numbers[1])
    _, error = waiter.communicate(timeout=600)
    assert b"KeyboardInterrupt" in error
    _, alive = psutil.wait_procs(started, timeout=600)
    assert not alive


def test_progress_prints_a_line_per_validation_where_there_is_no_terminal():
    stream = io.StringIO()
    progress = Progress(total=3, stream=stream)
    steps = [
        Step(1, {"critic/score/mean": 0.5}),
        Step(2, {"val-core/a/acc/mean@1": 0.25, "actor/tr_weight_mean": 1.375}),
    ]
    progress.update([])
    progress.update(steps[:1])
    progress.update(steps)
    progress.update(steps)
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines[1:] == ["step 2: val acc 0.250, mean weight 1.375"]
