"""Bookkeeping around a run: finished runs, abandoned attempts, failures in plain words."""

import io
import json
import os

import pytest

from tests.launch.test_configuration import recipe  # noqa: F401  (a fixture)
from verl_trgrpo.launch.child import TrainingProcess
from verl_trgrpo.launch.progress import Progress
from verl_trgrpo.launch.run import _failure, _set_aside, latest_checkpoint, run_training
from verl_trgrpo.report import MetricsLog, Step


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
    log = MetricsLog(tmp_path)
    assert len(log.read()) == 1
    _set_aside(log)
    assert log.read() == []
    assert [path.name for path in tmp_path.iterdir()] == ["metrics-1.jsonl.old"]


LOG = """\
\x1b[36m(TaskRunnerV1 pid=1)\x1b[0m WARNING: nothing to see
\x1b[36m(Worker pid=2)\x1b[0m Exception raised in creation task: The actor died because of an error
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
    assert "ray.exceptions" not in message and str(log_file) in message


def test_the_child_runs_the_hosts_main_and_reports_its_exit_code(tmp_path):
    ticks = []
    good = TrainingProcess(["--cfg", "hydra"], dict(os.environ), tmp_path / "good.log")
    assert good.wait(lambda: ticks.append(1), seconds=0.1) == 0
    assert ticks and "hydra:" in (tmp_path / "good.log").read_text()
    bad = TrainingProcess(["no.such.key=1"], dict(os.environ), tmp_path / "bad.log")
    assert bad.wait(lambda: None, seconds=0.1) != 0
    assert "no.such.key" in (tmp_path / "bad.log").read_text()


def test_an_interrupt_ends_the_child(tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    child = TrainingProcess(["--cfg", "hydra"], dict(os.environ), tmp_path / "log")
    with pytest.raises(KeyboardInterrupt):
        child.wait(interrupt)
    assert child._process.poll() is not None


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
