"""The launcher's bookkeeping: finished runs, abandoned attempts, failures. A shell script stands in for veRL's trainer."""

import contextlib
import functools
import io
import json
import os

import psutil
import pytest
from omegaconf import OmegaConf

from tests.launch.launching import composed, save_checkpoint
from verl_trgrpo.common.files import BusyError, lock
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.launch.log import LogWatch
from verl_trgrpo.launch.train import TrainingFailedError, launch
from verl_trgrpo.runs.checkpoints import latest_checkpoint
from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.runs.records import read_record, write_record
from verl_trgrpo.runs.run_directory import write_config
from verl_trgrpo.verl_plugin.loopback import LOOPBACK_ENVIRONMENT

TAU = "actor_rollout_ref__actor__policy_loss__shaping__tau"


ONE_RANK = {"trainer__n_gpus_per_node": 1, "trainer__nnodes": 1}


@pytest.fixture
def run_dir(tmp_path):
    """A run directory with the checkpoint of step 3."""
    directory = tmp_path / "run"
    save_checkpoint(directory, 3)
    return directory


def saving(run_dir, step):
    """Lines of shell that save a checkpoint."""
    saved = save_checkpoint(run_dir.with_name("saved"), step)
    return f"cp -r {saved} {run_dir}; echo {step} > {run_dir}/latest_checkpointed_iteration.txt"


def test_a_finished_run_is_not_started_again(run_dir):
    outcome = launch(composed(run_dir), 3, io.StringIO())
    assert (outcome.log_file, outcome.checkpoint) == (None, run_dir / "global_step_3")
    assert not list(run_dir.glob("train-*.log"))


def test_a_run_that_ended_with_fewer_steps_than_rows_would_give_is_not_started_again(tmp_path, fake_driver):
    """veRL's filter of long prompts may leave fewer."""
    run_dir = tmp_path / "run"
    fake_driver(saving(run_dir, 2))
    assert launch(composed(run_dir), 3, io.StringIO()).log_file is not None
    assert launch(composed(run_dir), 3, io.StringIO()).log_file is None
    assert launch(composed(run_dir), 4, io.StringIO()).log_file is not None


@pytest.mark.parametrize(
    "longer", [{"trainer__total_epochs": 60}, {"trainer__total_training_steps": 4}], ids=["epochs", "steps"]
)
def test_a_run_that_may_have_more_steps_than_before_is_not_finished(tmp_path, fake_driver, longer):
    """It ended at step 2 of at most 3; the number that the launcher can know may be the same as before."""
    run_dir = tmp_path / "run"
    fake_driver(saving(run_dir, 2))
    asked = {"trainer__total_training_steps": 3, "trainer__total_epochs": 30, **ONE_RANK}
    launch(composed(run_dir, **asked), 3, io.StringIO())
    assert launch(composed(run_dir, **asked), 3, io.StringIO()).log_file is None
    assert launch(composed(run_dir, **asked | longer), 3, io.StringIO()).log_file is not None


def test_a_validation_alone_does_not_finish_a_run(tmp_path, fake_driver):
    run_dir = tmp_path / "run"
    fake_driver("exit 1")
    save_checkpoint(run_dir, 2)
    with pytest.raises(TrainingFailedError):
        launch(composed(run_dir, **ONE_RANK), 3, io.StringIO())
    fake_driver("true")
    assert launch(composed(run_dir, trainer__val_only=True, **ONE_RANK), 3, io.StringIO()).log_file is not None
    assert launch(composed(run_dir, **ONE_RANK), 3, io.StringIO()).log_file is not None


def test_a_study_s_run_that_starts_over_is_not_taken_for_finished(tmp_path, fake_driver):
    """A study keeps its record; the first run reached its end, the second was killed after a save."""
    run_dir = tmp_path / "run"
    write_record(run_dir, {"arm": "grpo", "finished": False})
    fake_driver(saving(run_dir, 2))
    launch(composed(run_dir, **ONE_RANK), 3, io.StringIO())
    fake_driver(f"{saving(run_dir, 1)}; exit 1")
    with pytest.raises(TrainingFailedError):
        launch(composed(run_dir, trainer__resume_mode="disable", **ONE_RANK), 3, io.StringIO())
    assert read_record(run_dir).arm == "grpo"
    fake_driver("true")
    assert launch(composed(run_dir, **ONE_RANK), 3, io.StringIO()).log_file is not None


@pytest.mark.parametrize("code", [0, 1])
def test_the_step_that_was_reached_and_the_signals_are_recorded(tmp_path, fake_driver, code):
    run_dir, stream = tmp_path / "run", io.StringIO()
    data = '{"critic/score/mean": null}'  # as veRL writes NaN
    lines = "".join(
        f"""echo '{{"step": {step}, "data": {data}}}' >> {run_dir}/metrics-1.jsonl\n""" for step in (0, 1, 2)
    )
    fake_driver(f"{lines}{saving(run_dir, 1)}\nexit {code}")
    with contextlib.suppress(TrainingFailedError):
        launch(composed(run_dir, **ONE_RANK), 5, stream)
    assert read_record(run_dir).content()["last_step"] == 2
    [signal] = read_record(run_dir).content()["signals"]
    assert signal == {"signal": "reward is not finite", "first": 0, "last": 2, "stands": True}
    notes = [line for line in stream.getvalue().splitlines() if line.startswith("note: ")]
    assert [("step 2" in note, "5" in note) for note in notes] == ([] if code else [(True, True)])


def test_another_configuration_does_not_continue_a_run(run_dir):
    write_config(composed(run_dir).config, run_dir)
    with pytest.raises(InvalidInputError, match=r"shaping.tau: 9.0 there, 6 asked for.*resume_mode=disable"):
        launch(composed(run_dir, **{TAU: 6}), 9, io.StringIO())


@pytest.mark.parametrize("harmed", [False, True])
def test_a_run_that_starts_from_a_path_does_not_take_over_the_checkpoints_of_another(run_dir, fake_driver, harmed):
    """Its config.yaml would vouch for them, whether or not it fails; a damaged one may be restored later."""
    run = composed(run_dir)
    write_config(run.config, run_dir)
    recorded = (run_dir / "config.yaml").read_bytes()
    if harmed:
        (run_dir / "global_step_3" / "actor" / "model_world_size_1_rank_0.pt").unlink()
    elsewhere = save_checkpoint(run_dir.with_name("elsewhere"), 1)
    path = {"trainer__resume_mode": "resume_path", "trainer__resume_from_path": str(elsewhere), **ONE_RANK}
    fake_driver("exit 1")
    with pytest.raises(InvalidInputError, match=r"shaping.tau: 9.0 there, 6 asked for.*trainer\.default_local_dir"):
        launch(composed(run_dir, **path, **{TAU: 6}), 9, io.StringIO())
    assert (run_dir / "config.yaml").read_bytes() == recorded and not list(run_dir.glob("train-*.log"))
    with pytest.raises(TrainingFailedError):  # with the same settings, and in its own directory
        launch(composed(run_dir, **path), 9, io.StringIO())
    with pytest.raises(TrainingFailedError):
        launch(composed(run_dir.with_name("own"), **path, **{TAU: 6}), 9, io.StringIO())


LINKS = ("hydra", "hydra/.hydra", "hydra/main_ppo.log", "global_step_9", "global_step_9/actor")


@pytest.mark.parametrize("name", LINKS)
def test_a_training_does_not_write_through_a_link(run_dir, tmp_path, fake_driver, name):
    outside = tmp_path / "outside"
    outside.mkdir()
    (run_dir / name).parent.mkdir(exist_ok=True)
    (run_dir / name).symlink_to(outside)
    fake_driver("true")
    with pytest.raises(InvalidInputError, match=rf"{name} is a link"):
        launch(composed(run_dir, **ONE_RANK), 10, io.StringIO())
    assert not list(outside.iterdir()) and not (run_dir / "config.yaml").exists()


def test_what_an_earlier_start_moved_aside_stays(run_dir, tmp_path, fake_driver):
    """Also where a link or a file has the name: checkpoints are moved into a new directory, metrics to a new name."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (run_dir / "abandoned-4").symlink_to(outside)
    (run_dir / "abandoned-5").write_text("x")
    (run_dir / "metrics-3.jsonl").write_text("NEW")
    (run_dir / "metrics-3.jsonl.old").write_text("OLD")
    (run_dir / "metrics-3.jsonl.old-2").symlink_to(outside / "gone")
    fake_driver("true")
    launch(composed(run_dir, trainer__resume_mode="disable", **ONE_RANK), 9, io.StringIO())
    assert not list(outside.iterdir()) and (run_dir / "abandoned-6" / "global_step_3").is_dir()
    assert [(run_dir / f"metrics-3.jsonl.old{end}").read_text() for end in ("", "-3")] == ["OLD", "NEW"]


def test_starting_over_leaves_no_checkpoint_of_another_configuration(run_dir, fake_driver):
    """The second run ends before its first save; it must not resume from the first one, nor count as finished."""
    stream = io.StringIO()
    (run_dir / "global_step_2").mkdir()
    for name in ("metrics-1.jsonl", "metrics-notes.jsonl"):  # a user's own file does no harm
        (run_dir / name).write_text('{"step": 3, "data": {"critic/score/mean": 9.0}}\n')
    write_config(composed(run_dir).config, run_dir)
    fake_driver("echo killed at step 1; exit 1")
    rate = {"actor_rollout_ref__actor__optim__lr": 5e-5}
    scratch = r"(?s)killed at step 1.*no checkpoint was saved .*so the same command starts from scratch.*train-2\.log"
    with pytest.raises(TrainingFailedError, match=scratch):
        launch(composed(run_dir, trainer__resume_mode="disable", **rate), 3, stream)
    assert OmegaConf.load(run_dir / "config.yaml").actor_rollout_ref.actor.optim.lr == 5e-5
    assert f"note: starting over; the earlier checkpoints are now in {run_dir / 'abandoned-2'}" in stream.getvalue()
    assert latest_checkpoint(run_dir / "abandoned-2") == run_dir / "abandoned-2" / "global_step_3"
    assert (run_dir / "abandoned-2" / "global_step_2").is_dir()
    assert not list(run_dir.glob("global_step_*")) and latest_checkpoint(run_dir) is None
    with pytest.raises(TrainingFailedError, match=r"(?s)killed at step 1.*from scratch.*train-3\.log"):
        launch(composed(run_dir, **rate), 3, stream)
    assert (run_dir / "train-2.log").is_file() and not (run_dir / "abandoned-3").exists()
    # The first run's curves must not mix with those of the second.
    assert MetricsLog(run_dir).read().line == [] and (run_dir / "metrics-1.jsonl.old").is_file()


@pytest.mark.parametrize(
    ("variables", "changes", "alone"),
    [
        ({}, {}, True),
        ({"RAY_ADDRESS": "10.0.0.1:6379"}, {}, False),
        ({"RAY_ADDRESS": "10.0.0.1:6379"}, {"ray_kwargs__ray_init__address": "local"}, True),
        ({}, {"ray_kwargs__ray_init__address": "10.0.0.1:6379"}, False),
        ({}, {"trainer__nnodes": 2}, False),
    ],
)
def test_a_run_listens_on_this_machine_alone_unless_it_joins_others(
    tmp_path, monkeypatch, fake_driver, variables, changes, alone
):
    for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_TMPDIR", *LOOPBACK_ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    run_dir = tmp_path / "run"
    fake_driver(f"env > {tmp_path}/env")
    launch(composed(run_dir, **ONE_RANK | changes), 3, io.StringIO())
    found = {*(tmp_path / "env").read_text().splitlines()}
    assert {f"{name}={value}" in found for name, value in LOOPBACK_ENVIRONMENT.items()} == {alone}
    assert any(line.startswith("RAY_AUTH_TOKEN=") for line in found) == alone


def test_a_driver_that_hangs_without_its_engine_is_ended(tmp_path, monkeypatch, fake_driver):
    run_dir = tmp_path / "run"
    message = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
    fake_driver(f'echo "$@"; echo "(vLLMHttpServer pid=1) {message}"; exec sleep 900')
    monkeypatch.setattr("verl_trgrpo.launch.train.LogWatch", functools.partial(LogWatch, grace=0.0))
    dead = r"(?s)a process that had died: .*vLLM's engine process died: .*fixing this, no checkpoint.*train-1\.log"
    with pytest.raises(TrainingFailedError, match=dead):
        launch(composed(run_dir, trainer__logger="wandb"), 3, io.StringIO())
    assert "verl" in json.loads((run_dir / "run.json").read_text())["versions"]
    assert "trainer.logger=[wandb,file]" in (run_dir / "train-1.log").read_text()
    assert not [child for child in psutil.Process().children(recursive=True) if "sleep" in child.name()]


def test_a_damaged_line_of_metrics_does_not_end_a_training(tmp_path, fake_driver):
    run_dir = tmp_path / "run"
    fake_driver(f"echo nonsense > {run_dir}/metrics-1.jsonl; {saving(run_dir, 3)}")
    assert launch(composed(run_dir), 3, io.StringIO()).checkpoint == run_dir / "global_step_3"


def test_a_killed_driver_is_a_failure(tmp_path, fake_driver):
    fake_driver("kill -9 $$")
    with pytest.raises(TrainingFailedError, match="training ended with exit code -9"):
        launch(composed(tmp_path / "run"), 3, io.StringIO())


def test_a_run_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match=r"trainer.default_local_dir=.*file.*cannot be written"):
        launch(composed(tmp_path / "file"), 3, io.StringIO())


def test_a_second_run_is_refused_until_the_first_is_gone(tmp_path):
    (tmp_path / "run").mkdir()
    with lock(tmp_path / "run" / "run.lock", ""), pytest.raises(BusyError, match=rf"kill {os.getpid()}"):
        launch(composed(tmp_path / "run"), 3, io.StringIO())
    assert not (tmp_path / "run" / "config.yaml").exists(), "the other run keeps its own configuration"


def test_a_secret_of_the_environment_is_masked_in_the_log(tmp_path, monkeypatch, fake_driver):
    monkeypatch.setenv("JUDGE_API_KEY", "sk-hunter2hunter2")
    monkeypatch.setenv("HARMLESS", "plainplain")
    fake_driver("echo resolved: $JUDGE_API_KEY $HARMLESS; exit 1")
    run = composed(tmp_path / "run", trainer__project_name="${oc.env:JUDGE_API_KEY}-${oc.env:HARMLESS}")
    with pytest.raises(TrainingFailedError):
        launch(run, 3, io.StringIO())
    log = (tmp_path / "run" / "train-1.log").read_text()
    assert "hunter2" not in log and "resolved: *** plainplain" in log


def test_a_secret_in_the_command_is_masked_in_the_log(tmp_path, fake_driver):
    fake_driver("echo resolved: sk-hunter2hunter2 plainplain; exit 1")
    run = composed(tmp_path / "run", ray_kwargs__ray_init__runtime_env__env_vars__MY_API_KEY="sk-hunter2hunter2")
    with pytest.raises(TrainingFailedError):
        launch(run, 3, io.StringIO())
    assert (tmp_path / "run" / "train-1.log").read_text() == "resolved: *** plainplain\n"
