"""What a run resumes from is compared with what it will load, and what it saves with what can be resumed from."""

import io
import shutil
from pathlib import Path

import pytest
import torch

from tests.checks.validation import summary, validate
from tests.launch.launching import composed, save_checkpoint
from verl_trgrpo.checks.files import missing_files
from verl_trgrpo.checks.resume import loading_findings, resume_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import InvalidInputError, Level
from verl_trgrpo.launch.train import launch
from verl_trgrpo.runs.run_directory import write_config

ERROR, WARNING = Level.ERROR, Level.WARNING
ACTOR = "actor_rollout_ref.actor"
LOAD, SAVE, STRATEGY = f"{ACTOR}.checkpoint.load_contents", f"{ACTOR}.checkpoint.save_contents", f"{ACTOR}.strategy"
PATH, GPUS = "trainer.resume_from_path", "trainer.n_gpus_per_node"
ALL = ("model", "optim", "extra_state")


def view_of(run_dir, **changes):
    """A run on two GPUs; `save`, `load` and `strategy` stand for the actor's keys."""
    names = {"save": SAVE, "load": LOAD, "strategy": STRATEGY}
    sound = {GPUS: 2, "trainer.nnodes": 1, STRATEGY: "fsdp2"}
    values = sound | {names.get(key, key).replace("__", "."): value for key, value in changes.items()}
    return RunView(composed(run_dir, **{key.replace(".", "__"): value for key, value in values.items()}))


def add_whole_model(directory):
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"weights")
    return directory


# Kinds of shards that were saved by two ranks, what the run asks for, the reported key and level, parts of the message.
CASES = {
    "nothing but a whole model": ((), {"save": ["hf_model"]}, LOAD, ERROR, ("[hf_model]", "actor_rollout_ref.model.path=")),
    "a whole model, shards asked for": ((), {}, LOAD, ERROR, ("base model", "actor_rollout_ref.model.path=")),
    "weights not loaded": (ALL, {"load": ["optimizer"]}, LOAD, ERROR, ("[optimizer]", "[model,optimizer,extra]")),
    "optimizer not loaded": (ALL, {"load": ["model", "extra"]}, LOAD, WARNING, ("optimizer",)),
    "extra not loaded": (ALL, {"load": ["model", "optimizer"]}, LOAD, WARNING, ("extra",)),
    "other number of ranks": (ALL, {GPUS: 4}, GPUS, ERROR, (f"{GPUS}=4", "by 2,")),
    "more nodes": (ALL, {"trainer.nnodes": 2}, GPUS, ERROR, ("trainer.nnodes=2", "by 2,")),
    "other version of FSDP": (ALL, {"strategy": "fsdp"}, STRATEGY, ERROR, ("=fsdp:", "version 2")),
    "files not known here": (ALL, {"strategy": "megatron"}, STRATEGY, Level.NOT_CHECKED, ("=megatron:",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_has_to_hold_what_the_run_loads(tmp_path, name):
    kinds, changes, key, level, parts = CASES[name]
    checkpoint = save_checkpoint(tmp_path, 2, ranks=2, kinds=kinds)
    if not kinds:
        add_whole_model(checkpoint / "actor" / "huggingface")
    [finding] = loading_findings(view_of(tmp_path, **changes))
    assert (finding.where, finding.level) == (key, level) and finding.message.startswith(f"{key}=")
    assert all(part in finding.message for part in parts)
    path = {"trainer.resume_mode": "resume_path", PATH: str(checkpoint)}
    assert loading_findings(view_of(tmp_path / "other", **changes, **path)) == [finding]


def test_weights_that_are_not_finite_are_refused_and_the_latest_finite_ones_offered(tmp_path):
    for step in (1, 2, 3):
        checkpoint = save_checkpoint(tmp_path, step, ranks=2)
        for rank in (0, 1):
            part = torch.full((4,), float("nan") if step > 1 and rank else 1.0)
            torch.save({"w": part}, checkpoint / "actor" / f"model_world_size_2_rank_{rank}.pt")
    assert loading_findings(view_of(tmp_path)) == []
    [finding] = loading_findings(view_of(tmp_path), weights=True)
    assert (
        finding.level is ERROR and "global_step_3/actor/model_world_size_2_rank_1.pt: w has 4 values" in finding.message
    )
    assert f"resume_from_path={tmp_path}/global_step_1" in finding.message


def test_a_shard_that_cannot_be_searched_is_a_warning_and_hides_no_other(tmp_path):
    actor = save_checkpoint(tmp_path, 1, ranks=2) / "actor"
    torch.save({"w": torch.ones(4)}, actor / "model_world_size_2_rank_0.pt")
    torch.save({"w": torch.ones(4), "o": Path}, actor / "model_world_size_2_rank_1.pt")
    [finding] = loading_findings(view_of(tmp_path), weights=True)
    assert finding.level is WARNING and "rank_1.pt was not searched" in finding.message
    torch.save({"w": torch.full((4,), float("nan"))}, actor / "model_world_size_2_rank_0.pt")
    [finding] = loading_findings(view_of(tmp_path), weights=True)
    assert finding.level is ERROR and "rank_0.pt: w has 4 values" in finding.message


def test_a_checkpoint_that_holds_everything_is_fine(tmp_path):
    save_checkpoint(tmp_path, 2, ranks=2)
    assert loading_findings(view_of(tmp_path)) == []
    assert loading_findings(view_of(tmp_path / "none")) == []
    everything = view_of(tmp_path, save=["model", "optimizer", "extra", "hf_model"])
    assert loading_findings(everything) == [], "hf_model is never loaded from shards"
    disabled = {"trainer.resume_mode": "disable", GPUS: 4}
    assert loading_findings(view_of(tmp_path, **disabled)) == []


def test_both_models_of_a_run_with_a_critic_are_checked(tmp_path):
    checkpoint = save_checkpoint(tmp_path, 2, ranks=2)
    view = view_of(tmp_path, algorithm__adv_estimator="gae", critic__strategy="fsdp2")
    assert summary(loading_findings(view)) == [("critic.checkpoint.load_contents", ERROR)]
    shutil.copytree(checkpoint / "actor", checkpoint / "critic")
    assert loading_findings(view) == []


def test_the_latest_checkpoint_that_would_do_is_offered(tmp_path):
    """A kind of shards was deleted from the last one, or was never saved there."""
    for step in (2, 4, 6):
        save_checkpoint(tmp_path, step, ranks=2, kinds=ALL if step < 6 else ("model", "extra_state"))
    (tmp_path / "global_step_4" / "actor" / "model_world_size_2_rank_0.pt").unlink()
    [finding] = loading_findings(view_of(tmp_path))
    assert (finding.where, finding.level) == (LOAD, ERROR) and "no shards of optimizer" in finding.message
    offer = finding.message.rpartition("go on from ")[2]
    assert offer == f"global_step_2: trainer.resume_mode=resume_path {PATH}={tmp_path}/global_step_2"
    typed = dict(word.split("=") for word in offer.split()[1:])
    assert loading_findings(view_of(tmp_path, **typed)) == []


def test_files_that_were_built_again_are_named(tmp_path, fake_driver):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("1")
    run_dir, files = tmp_path / "run", {"data.train_files": [str(rows)], GPUS: 1}
    save_checkpoint(run_dir, 2)
    fake_driver("true")
    launch(view_of(run_dir, **files).run, 4, io.StringIO())
    assert loading_findings(view_of(run_dir, **files)) == []
    rows.write_text("2")
    [finding] = loading_findings(view_of(run_dir, **files))
    assert (finding.where, finding.level) == ("data.train_files", WARNING) and str(rows) in finding.message
    other = tmp_path / "copy.jsonl"
    other.write_text("3")
    assert loading_findings(view_of(run_dir, **files | {"data.train_files": [str(other)]})) == []


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_another_length_bends_a_schedule(tmp_path, schedule):
    key = f"{ACTOR}.optim.lr_scheduler_type"
    changes = {key: schedule, "trainer.total_training_steps": 9}
    save_checkpoint(tmp_path, 2, ranks=2)
    write_config(view_of(tmp_path, **changes).config, tmp_path)
    assert loading_findings(view_of(tmp_path, **changes, trainer__total_epochs=77)) == []
    found = loading_findings(view_of(tmp_path, **changes | {"trainer.total_training_steps": 12}))
    assert summary(found) == ([] if schedule == "constant" else [(key, WARNING)])
    assert all("total_training_steps=9 and is total_training_steps=12" in finding.message for finding in found)


SAVING = {
    "as usual": ({}, []),
    "with a whole model": ({"save": ["model", "optimizer", "extra", "hf_model"]}, []),
    "a whole model alone": ({"save": ["hf_model"]}, [(SAVE, WARNING)]),
    "no checkpoints": ({"save": ["hf_model"], "trainer.save_freq": -1}, [("trainer.save_freq", WARNING)]),
    "weights saved, not loaded": ({"load": ["optimizer", "extra"]}, [(LOAD, WARNING)]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAVING)
def test_what_is_saved_can_be_resumed_from(tmp_path, name):
    changes, expected = SAVING[name]
    found = resume_findings(view_of(tmp_path, **{"trainer.save_freq": 1, **changes}))
    assert summary(found) == expected
    assert all(finding.message.startswith(f"{finding.where}=") for finding in found)


@pytest.mark.parametrize("name", ["global_step_2/", "global_step_2/actor", "step_2", "none"])
def test_a_path_to_resume_from_has_to_end_in_the_step(tmp_path, name):
    (tmp_path / "global_step_2" / "actor").mkdir(parents=True)
    (tmp_path / "step_2").mkdir()

    def found(place):
        view = view_of(tmp_path, **{"trainer.resume_mode": "resume_path", PATH: f"{tmp_path}/{place}"})
        return [finding for finding in missing_files(view) if finding.where == PATH]

    [finding] = found(name)
    assert finding.level is ERROR and finding.message.startswith(f"{PATH}={tmp_path}/{name}:")
    assert found("global_step_2") == []


def test_a_damaged_checkpoint_to_resume_from_is_refused(tmp_path):
    checkpoint = save_checkpoint(tmp_path, 2, ranks=2)
    view = view_of(tmp_path, **{"trainer.resume_mode": "resume_path", PATH: str(checkpoint)})
    for content, level in ((b"", ERROR), (None, WARNING)):
        (checkpoint / "data.pt").unlink()
        if content is not None:
            (checkpoint / "data.pt").write_bytes(content)
        [finding] = loading_findings(view)
        assert (finding.where, finding.level) == (PATH, level) and "data.pt" in finding.message
    (checkpoint / "actor" / "model_world_size_2_rank_1.pt").unlink()
    [finding] = loading_findings(view)
    assert (finding.where, finding.level) == (PATH, ERROR) and "model of rank 1" in finding.message


def test_validate_reports_what_a_resume_would_load_unless_the_run_is_finished(sound_run, tmp_path):
    checkpoint = save_checkpoint(tmp_path / "run", 3, kinds=(), version=1)
    add_whole_model(checkpoint / "actor" / "huggingface")
    asked = [*sound_run, f"{SAVE}=[hf_model]", "trainer.save_freq=1"]
    report = validate("trgrpo_trainer", asked)
    assert summary(report.findings) == [(LOAD, ERROR), (SAVE, WARNING)]
    finished = validate("trgrpo_trainer", [*asked, "trainer.total_training_steps=3"])
    assert summary(finished.findings) == [(SAVE, WARNING)]


def test_the_launcher_judges_the_checkpoint_that_it_settles_on(tmp_path):
    """The tracked one would do, but is cut short; the one before has a whole model only."""
    add_whole_model(save_checkpoint(tmp_path, 2, kinds=()) / "actor" / "huggingface")
    [shard] = (save_checkpoint(tmp_path, 3) / "actor").glob("model_*.pt")
    shard.write_bytes(shard.read_bytes()[:100])
    run = composed(tmp_path, trainer__n_gpus_per_node=1, trainer__nnodes=1)
    with pytest.raises(InvalidInputError, match=rf"{LOAD}=.*global_step_2"):
        launch(run, 9, io.StringIO())
    assert not list(tmp_path.glob("train-*.log"))
