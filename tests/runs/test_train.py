"""Bookkeeping around a run: finished runs, abandoned attempts, failures in plain words."""

import functools
import io
import json
import os

import psutil
import pytest
from omegaconf import OmegaConf

from verl_trgrpo.common.files import BusyError, lock
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.log import LogWatch
from verl_trgrpo.runs.metrics import MetricsLog, Step
from verl_trgrpo.runs.progress import Progress
from verl_trgrpo.runs.resume import check_same_run, next_start
from verl_trgrpo.runs.train import TrainingFailedError, latest_checkpoint, run_training


def test_a_finished_run_is_only_shown(sound_run, tmp_path):
    run_dir = tmp_path / "run"
    (run_dir / "global_step_3").mkdir(parents=True)
    (run_dir / "latest_checkpointed_iteration.txt").write_text("3")
    record = {"step": 3, "data": {"critic/score/mean": 1.5, "val-core/kk/acc/mean@1": 0.25}}
    (run_dir / "metrics-1.jsonl").write_text(json.dumps(record) + "\n")
    outcome = run_training([*sound_run, "trainer.total_training_steps=3"], stream=io.StringIO())
    assert outcome.log_file is None
    assert not list(run_dir.glob("train-*.log"))


def test_a_run_that_ended_with_fewer_steps_than_rows_would_give_is_not_started_again(sound_run, tmp_path, fake_driver):
    """veRL's filter of long prompts may leave fewer."""
    run_dir = tmp_path / "run"
    recipe = [*sound_run, "trainer.total_training_steps=3"]
    save = f"mkdir -p {run_dir}/global_step_2/actor; echo x > {run_dir}/global_step_2/actor/weights"
    fake_driver(f"{save}; echo 2 > {run_dir}/latest_checkpointed_iteration.txt")
    assert run_training(recipe, stream=io.StringIO()).log_file is not None
    assert run_training(recipe, stream=io.StringIO()).log_file is None
    longer = [*sound_run, "trainer.total_training_steps=4"]
    assert run_training(longer, stream=io.StringIO()).log_file is not None


def test_another_configuration_does_not_continue_a_run(sound_run, tmp_path):
    run_dir = tmp_path / "run"
    (run_dir / "global_step_3").mkdir(parents=True)
    (run_dir / "latest_checkpointed_iteration.txt").write_text("3")
    first = compose(overrides=[*sound_run, "trainer.total_training_steps=3"], platform="cpu")
    OmegaConf.save(first.config, run_dir / "config.yaml")
    other = [*sound_run, "trainer.total_training_steps=9", "actor_rollout_ref.actor.policy_loss.shaping.tau=6"]
    with pytest.raises(InvalidInputError, match=r"shaping.tau: 9.0 there, 6 asked for.*resume_mode=disable"):
        run_training(other, stream=io.StringIO())
    # Longer, or validated more often, is the same run.
    longer = compose(overrides=[*sound_run, "trainer.total_training_steps=9", "trainer.test_freq=1"], platform="cpu")
    check_same_run(longer.config, run_dir)


def test_starting_over_leaves_no_checkpoint_of_another_configuration(sound_run, tmp_path, fake_driver):
    """The second run ends before its first save; it must not go on from, or be shown as, the first one."""
    run_dir, stream = tmp_path / "run", io.StringIO()
    for step in (2, 3):
        (run_dir / f"global_step_{step}").mkdir(parents=True)
    (run_dir / "latest_checkpointed_iteration.txt").write_text("3")
    for name in ("metrics-1.jsonl", "metrics-notes.jsonl"):  # somebody's own file does no harm
        (run_dir / name).write_text('{"step": 3, "data": {"critic/score/mean": 9.0}}\n')
    recipe = [*sound_run, "trainer.total_training_steps=3"]
    OmegaConf.save(compose(overrides=recipe, platform="cpu").config, run_dir / "config.yaml")
    fake_driver("echo killed at step 1; exit 1")
    other = [*recipe, "actor_rollout_ref.actor.optim.lr=5e-5"]
    scratch = r"(?s)killed at step 1.*no checkpoint was saved .*so the same command starts from scratch.*train-2\.log"
    with pytest.raises(TrainingFailedError, match=scratch):
        run_training([*other, "trainer.resume_mode=disable"], stream=stream)
    assert OmegaConf.load(run_dir / "config.yaml").actor_rollout_ref.actor.optim.lr == 5e-5
    assert f"note: starting over; the earlier checkpoints are now in {run_dir / 'abandoned-2'}" in stream.getvalue()
    assert latest_checkpoint(run_dir / "abandoned-2") == run_dir / "abandoned-2" / "global_step_3"
    assert (run_dir / "abandoned-2" / "global_step_2").is_dir()
    assert not list(run_dir.glob("global_step_*")) and latest_checkpoint(run_dir) is None
    with pytest.raises(TrainingFailedError, match=r"(?s)killed at step 1.*from scratch.*train-3\.log"):
        run_training(other, stream=stream)
    assert (run_dir / "train-2.log").is_file() and not (run_dir / "abandoned-3").exists()
    # Curves of the first run would mix with those of the second.
    assert MetricsLog(run_dir).read() == [] and (run_dir / "metrics-1.jsonl.old").is_file()


def test_a_driver_that_hangs_without_its_engine_is_ended(sound_run, tmp_path, monkeypatch, fake_driver):
    fake_driver('echo "$@" vllm.v1.engine.exceptions.EngineDeadError; exec sleep 900')
    monkeypatch.setattr("verl_trgrpo.runs.train.LogWatch", functools.partial(LogWatch, grace=0.0))
    dead = (
        r"(?s)a process that had died: .*vLLM's engine process died: .*Once that is mended, no checkpoint.*train-1\.log"
    )
    with pytest.raises(TrainingFailedError, match=dead):
        run_training([*sound_run, "trainer.total_training_steps=3", "trainer.logger=wandb"], stream=io.StringIO())
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert "verl" in record["versions"]
    assert "trainer.logger=[wandb,file]" in (tmp_path / "run" / "train-1.log").read_text()
    assert not [child for child in psutil.Process().children(recursive=True) if "sleep" in child.name()]


def test_a_line_that_is_no_metric_does_not_end_a_training(sound_run, tmp_path, fake_driver):
    run_dir = tmp_path / "run"
    save = f"mkdir -p {run_dir}/global_step_3/actor; echo x > {run_dir}/global_step_3/actor/weights"
    fake_driver(
        f"echo nonsense > {run_dir}/metrics-1.jsonl; {save}; echo 3 > {run_dir}/latest_checkpointed_iteration.txt"
    )
    outcome = run_training([*sound_run, "trainer.total_training_steps=3"], stream=io.StringIO())
    assert outcome.checkpoint == run_dir / "global_step_3"


def test_a_killed_driver_is_a_failure(sound_run, fake_driver):
    fake_driver("kill -9 $$")
    with pytest.raises(TrainingFailedError, match="training ended with exit code -9"):
        run_training([*sound_run, "trainer.total_training_steps=3"], stream=io.StringIO())


def test_the_retrieval_server_may_have_another_address_when_a_run_goes_on(sound_run, tmp_path):
    url, topk = (f"actor_rollout_ref.rollout.custom.search.{key}" for key in ("url", "topk"))
    searching = [*sound_run, "agent=search_tags"]
    first = compose(overrides=[*searching, f"{url}=http://127.0.0.1:8000"], platform="cpu")
    OmegaConf.save(first.config, tmp_path / "config.yaml")
    moved = compose(overrides=[*searching, f"{url}=http://127.0.0.1:8001"], platform="cpu")
    check_same_run(moved.config, tmp_path)
    other = compose(overrides=[*searching, f"{topk}=9"], platform="cpu")
    with pytest.raises(InvalidInputError, match=r"search\.topk: 3 there, 9 asked for"):
        check_same_run(other.config, tmp_path)


def test_a_run_directory_that_cannot_be_written_is_named(sound_run, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        InvalidInputError, match=r"trainer.default_local_dir=.*file.*cannot be written.*another directory"
    ):
        run_training([*sound_run, f"trainer.default_local_dir={tmp_path / 'file'}"], stream=io.StringIO())


def test_a_second_run_is_refused_until_the_first_is_gone(sound_run, tmp_path):
    (tmp_path / "run").mkdir()
    with lock(tmp_path / "run" / "run.lock", ""), pytest.raises(BusyError, match=rf"kill {os.getpid()}"):
        run_training(sound_run, stream=io.StringIO())
    assert not (tmp_path / "run" / "config.yaml").exists(), (
        "the refused run left its configuration in the other's directory"
    )


@pytest.mark.parametrize(
    ("mode", "saved", "expected"),
    [
        ("auto", True, "the same command goes on from the latest checkpoint, global_step_7"),
        ("auto", False, "the same command starts from scratch"),
        ("disable", True, "with trainer.resume_mode=auto the command goes on"),
        ("resume_path", True, "starts again from trainer.resume_from_path"),
    ],
)
def test_the_next_start_depends_on_the_mode_and_on_what_was_saved(tmp_path, mode, saved, expected):
    if saved:
        (tmp_path / "latest_checkpointed_iteration.txt").write_text("7")
        (tmp_path / "global_step_7").mkdir()
    assert expected in next_start(OmegaConf.create({"trainer": {"resume_mode": mode}}), tmp_path)


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


EQUAL, NO_ANSWER, REWARD = "critic/equal_groups_frac", "critic/no_answer_frac", "critic/score/mean"


def warned(*records):
    stream = io.StringIO()
    progress = Progress(total=9, stream=stream)
    steps = [Step(number, record) for number, record in enumerate(records, start=1)]
    for seen in range(len(steps) + 1):
        progress.update(steps[:seen])
    progress.close()
    return [line for line in stream.getvalue().splitlines() if line.startswith("warning")]


def test_a_run_that_learns_nothing_says_so_once_after_three_steps():
    nothing, something = {EQUAL: 1.0, REWARD: 0.0}, {EQUAL: 0.5, REWARD: 0.4}
    assert warned(nothing, nothing) == warned(nothing, something, nothing, nothing) == warned({REWARD: 0.0}) == []
    [line] = warned(something, nothing, nothing, nothing, nothing)
    assert "steps 2 to 4" in line and "learns nothing" in line and "preview" in line
    [line] = warned(*[nothing | {NO_ANSWER: 0.75}] * 3)
    assert "75% of the responses had no answer" in line
