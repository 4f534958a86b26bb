"""Checkpoints as a kill, a full disk or a power failure leaves them, and what a run does about them."""

import io
import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from tests.launch.launching import composed, save_checkpoint
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.launch.train import launch
from verl_trgrpo.runs.checkpoints import damage, is_whole, latest_checkpoint, settle_checkpoint, tracked_checkpoint
from verl_trgrpo.runs.records import write_record
from verl_trgrpo.runs.run_directory import next_start, write_config

TRACKER = "latest_checkpointed_iteration.txt"
OPTIMIZER = "actor/optim_world_size_2_rank_1.pt"


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.fixture
def run_dir(tmp_path):
    """A run directory with the checkpoints of steps 2 and 4."""
    directory = tmp_path / "run"
    save_checkpoint(directory, 2, ranks=2)
    save_checkpoint(directory, 4, ranks=2)
    return directory


def test_a_sound_checkpoint_is_left_alone(run_dir):
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*") if path.is_file()}
    assert settle_checkpoint(run_dir) == [] and latest_checkpoint(run_dir) == run_dir / "global_step_4"
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*") if path.is_file()} == before


def test_a_half_written_checkpoint_after_the_tracked_one_does_not_matter(run_dir):
    (run_dir / TRACKER).write_text("2")
    (run_dir / "global_step_4" / "data.pt").unlink()
    cut_short(run_dir / "global_step_4" / OPTIMIZER)
    assert settle_checkpoint(run_dir) == [] and latest_checkpoint(run_dir) == run_dir / "global_step_2"


@pytest.mark.parametrize("content", [None, b"", b"\0\0", b"4x", b"-4", b"7", "４".encode(), b"4" * 2000])
def test_a_tracker_that_names_no_checkpoint_is_replaced_by_the_latest_whole_one(run_dir, content):
    """A full disk empties it, a power failure leaves zeros, a copy leaves it out; veRL would stop, or start from scratch."""
    (run_dir / TRACKER).unlink()
    if content is not None:
        (run_dir / TRACKER).write_bytes(content)
    assert tracked_checkpoint(run_dir) is None or content == "４".encode()
    assert "goes on from the latest checkpoint, global_step_4" in next_start(composed(run_dir).config, run_dir)
    [note] = settle_checkpoint(run_dir) or [""]
    assert "going on from global_step_4" in note or content == "４".encode()
    assert latest_checkpoint(run_dir) == run_dir / "global_step_4"
    assert (run_dir / TRACKER).read_text() == "4"


DAMAGE = {
    "weights gone": (lambda c: shutil.rmtree(c / "actor"), "actor is missing or empty"),
    "optimizer cut short": (lambda c: cut_short(c / OPTIMIZER), f"{OPTIMIZER} is cut short"),
    "empty file": (lambda c: (c / OPTIMIZER).write_bytes(b""), f"{OPTIMIZER} is cut short"),
    "rank missing": (lambda c: (c / OPTIMIZER).unlink(), "actor lacks optim of rank 1"),
    "all shards of the model gone": (
        lambda c: [path.unlink() for path in c.glob("actor/model_*")],
        "actor lacks the shards of the model",
    ),
    "all shards gone": (
        lambda c: [path.unlink() for path in c.glob("actor/*.pt")],
        "actor lacks the shards of the model",
    ),
    "stopped at once": (lambda c: (c / "actor" / "fsdp_config.json").unlink(), "actor lacks fsdp_config.json"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_with_a_note(run_dir, name):
    harm, complaint = DAMAGE[name]
    harm(run_dir / "global_step_4")
    assert complaint in damage(run_dir / "global_step_4")
    notes = settle_checkpoint(run_dir)
    assert complaint in notes[0] and "going on from global_step_2" in notes[0]
    assert latest_checkpoint(run_dir) == run_dir / "global_step_2"


def test_without_a_complete_checkpoint_nothing_starts_over_silently(run_dir):
    for step in (2, 4):
        shutil.rmtree(run_dir / f"global_step_{step}" / "actor")
    with pytest.raises(InvalidInputError, match=r"global_step_4: actor is missing.*trainer.resume_mode=disable"):
        settle_checkpoint(run_dir)
    assert (run_dir / TRACKER).read_text() == "4"


def unended(run_dir, *steps):
    """Leave what a kill in the first save leaves, for each step."""
    run_dir.mkdir(exist_ok=True)
    for step in steps:
        checkpoint = save_checkpoint(run_dir, step)
        (checkpoint / "actor" / "fsdp_config.json").unlink()
        (checkpoint / "data.pt").unlink()
        (run_dir / TRACKER).unlink()


def logged(run_dir, last):
    lines = [json.dumps({"step": step, "data": {"critic/score/mean": 0.5}}) for step in range(last + 1)]
    (run_dir / "metrics-1.jsonl").write_text("\n".join([*lines, ""]))


@pytest.mark.parametrize("last", [None, 0, 1])
@pytest.mark.parametrize("steps", [(), (2,)])
def test_a_kill_in_the_first_save_lets_a_run_start_from_scratch(tmp_path, steps, last):
    """Directories without a file, which a test or a kill before the weights leaves, do not matter."""
    run_dir = tmp_path / "run"
    unended(run_dir, *steps)
    for later in (4, 6):
        (run_dir / f"global_step_{later}" / "actor").mkdir(parents=True)
        os.mkfifo(run_dir / f"global_step_{later}" / "actor" / "optim_world_size_1_rank_0.pt")
    if last is not None:
        logged(run_dir, last)
    [note] = settle_checkpoint(run_dir)
    assert "global_step_4, global_step_6" in note and "not saved to its end" in note
    assert next_start(composed(run_dir).config, run_dir).endswith("the same command starts from scratch")
    assert not (run_dir / TRACKER).exists()


LOSSES = {
    "the state of the data is there": (
        lambda run_dir: (unended(run_dir, 2), torch.save({}, run_dir / "global_step_2" / "data.pt")),
        "global_step_2 has data.pt",
    ),
    "the metrics go on": (lambda run_dir: (unended(run_dir, 2), logged(run_dir, 2)), "although step 2 was trained"),
    "the record goes on": (
        lambda run_dir: (unended(run_dir, 2), write_record(run_dir, {"last_step": 9})),
        "although step 9 was trained",
    ),
    "several saves": (lambda run_dir: unended(run_dir, 2, 10), "global_step_2, global_step_10 are all incomplete"),
    "the weights are gone": (
        lambda run_dir: (
            unended(run_dir, 2),
            logged(run_dir, 3),
            shutil.rmtree(run_dir / "global_step_2" / "actor"),
        ),
        "although step 3 was trained",
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_partial_copy_without_a_tracker_does_not_start_from_scratch(tmp_path, name):
    run_dir = tmp_path / "run"
    lose, reason = LOSSES[name]
    lose(run_dir)
    with pytest.raises(InvalidInputError, match=rf"is missing; .*{reason}.*trainer.resume_mode=disable"):
        settle_checkpoint(run_dir)
    assert next_start(composed(run_dir).config, run_dir).startswith("the same command is refused")


@pytest.mark.parametrize("last", [0, 3])
def test_steps_without_any_checkpoint_are_told(tmp_path, last):
    logged(tmp_path, last)
    notes = settle_checkpoint(tmp_path)
    assert len(notes) == bool(last) and all("reach step 3" in note and "from scratch" in note for note in notes)


def test_a_kill_between_deleting_the_old_checkpoint_and_naming_the_new_one(run_dir):
    """With max_actor_ckpt_to_keep=1 veRL deletes the old weights before data.pt and the tracker file of the new ones."""
    (run_dir / TRACKER).write_text("2")
    shutil.rmtree(run_dir / "global_step_2" / "actor")
    cut_short(run_dir / "global_step_4" / "data.pt")
    notes = settle_checkpoint(run_dir)
    assert latest_checkpoint(run_dir) == run_dir / "global_step_4"
    assert len(notes) == 2 and "the order of the data starts over" in notes[1]
    assert not (run_dir / "global_step_4" / "data.pt").exists()
    assert (run_dir / "global_step_4" / "data.pt.damaged").exists()
    assert settle_checkpoint(run_dir) == ["global_step_4/data.pt is missing; the order of the data starts over"]


def test_every_cut_of_a_file_is_noticed(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"weight": torch.arange(50)}, path)
    content = path.read_bytes()
    assert is_whole(path)
    for length in (0, 1, 100, len(content) // 2, len(content) - 30, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(Exception):  # noqa: B017  (torch raises several kinds; what counts is that it cannot be loaded)
            torch.load(path)
        assert not is_whole(path), length


@pytest.mark.parametrize("content", [None, ""])
def test_the_launcher_repairs_before_it_starts(run_dir, fake_driver, content):
    stream = io.StringIO()
    run = composed(run_dir, trainer__n_gpus_per_node=2, trainer__nnodes=1)
    write_config(run.config, run_dir)
    (run_dir / TRACKER).unlink()
    if content is not None:
        (run_dir / TRACKER).write_text(content)
    finished = launch(run, 4, stream)
    assert finished.checkpoint == run_dir / "global_step_4" and finished.log_file is None
    fake_driver(f"cat {run_dir}/{TRACKER}")
    assert launch(run, 6, stream).log_file.read_text() == "4"
    assert (
        "note: run: latest_checkpointed_iteration.txt" in stream.getvalue()
        and "from global_step_4" in stream.getvalue()
    )


@pytest.mark.parametrize(
    ("tracked", "content", "message"),
    [("", None, "shaping.tau: 9.0 there, 6 asked for"), ("4", "data: {train_files: [", r"config\.yaml is damaged")],
)
def test_a_checkpoint_has_to_be_of_this_run(run_dir, tracked, content, message):
    """One whose tracker had to be repaired, and one whose configuration is damaged."""
    write_config(composed(run_dir).config, run_dir)
    if content is not None:
        (run_dir / "config.yaml").write_text(content)
    (run_dir / TRACKER).write_text(tracked)
    other = composed(run_dir, actor_rollout_ref__actor__policy_loss__shaping__tau=6)
    with pytest.raises(InvalidInputError, match=rf"{message}.*trainer\.resume_mode=disable"):
        launch(other, 4, io.StringIO())
