"""Packages and GPUs: errors on the machine that trains, "not checked" on another one."""

import os
from types import SimpleNamespace

import pytest
from safetensors import safe_open

from tests.checks.validation import summary
from tests.conftest import composed
from verl_trgrpo.checks import machine
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.demos.puzzles import CHECKPOINT

GPUS = "trainer.n_gpus_per_node"
# Nothing listens at this port.
CLOSED = "127.0.0.1:9"
ONE_GPU = ["+ray_kwargs.ray_init.num_gpus=1", f"{GPUS}=1"]


def found(*overrides, trains=True):
    return machine.machine_findings(RunView(composed(overrides), trains=trains))


@pytest.fixture(autouse=True)
def own_cluster(monkeypatch, tmp_path):
    """No Ray cluster that was started on this machine, which has many CPUs."""
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 64)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize(("trains", "level"), [(True, Level.ERROR), (False, Level.NOT_CHECKED)])
def test_a_tracker_that_is_not_installed(trains, level):
    [finding] = found("trainer.logger=[console,vemlp_wandb]", *ONE_GPU, trains=trains)
    assert summary([finding]) == [("trainer.logger", level)] and "vemlp_wandb" in finding.message
    assert found("trainer.logger=[console,file]", *ONE_GPU, trains=trains) == []


def test_each_tracker_of_verl_whose_package_is_missing_is_named(monkeypatch):
    """veRL's own list: what comes with veRL or Python is fine, everything else is a package."""
    from verl.utils.tracking import Tracking

    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda _: None)
    loggers = [name for name in Tracking.supported_backend if name not in ("console", "file")]
    found = machine._missing_packages(RunView(composed([f"trainer.logger=[console,file,{','.join(loggers)}]"])))
    named = [message.partition(":")[0] for key, message in found if key == "trainer.logger"]
    assert named == [f"trainer.logger={name}" for name in loggers] and "rl_insight" in loggers


@pytest.mark.parametrize(("trains", "level"), [(True, Level.ERROR), (False, Level.NOT_CHECKED)])
def test_a_rollout_engine_that_is_not_installed(trains, level):
    name = "actor_rollout_ref.rollout.name"
    [finding] = found(f"{name}=trtllm", *ONE_GPU, trains=trains)
    assert summary([finding]) == [(name, level)] and f"{name}=trtllm" in finding.message


@pytest.mark.parametrize(("trains", "level"), [(True, Level.ERROR), (False, Level.NOT_CHECKED)])
def test_gpus_that_the_machine_does_not_have(monkeypatch, trains, level):
    monkeypatch.setattr(machine, "accelerator_count", lambda: 8)
    [finding] = found(f"{GPUS}=8", "trainer.nnodes=2", trains=trains)
    assert summary([finding]) == [(GPUS, level)] and "16" in finding.message and "has 8" in finding.message
    assert found(f"{GPUS}=8", trains=trains) == []
    assert found(f"{GPUS}=9", "+ray_kwargs.ray_init.num_gpus=9", trains=trains) == [], "Ray has what it is told"


@pytest.mark.parametrize("place", ["+ray_kwargs.ray_init.address", "RAY_ADDRESS", "ray_current_cluster"])
def test_the_gpus_of_a_cluster_are_asked_for_by_the_machine_that_trains(monkeypatch, tmp_path, place):
    overrides = []
    if place == "RAY_ADDRESS":
        monkeypatch.setenv(place, CLOSED)
    elif place == "ray_current_cluster":
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / place).write_text(CLOSED)
    else:
        overrides = [f"{place}='{CLOSED}'"]
    [later] = found(*overrides, trains=False)
    [now] = found(*overrides)
    assert summary([later, now]) == [(GPUS, Level.NOT_CHECKED), (GPUS, Level.ERROR)]
    assert all(f"{place.lstrip('+')}={CLOSED}" in finding.message for finding in (later, now))
    monkeypatch.setattr(machine, "_of_cluster", lambda address: (8, 64) if address == CLOSED else (0, 0))
    assert found(*overrides, f"{GPUS}=8") == []
    [finding] = found(*overrides, f"{GPUS}=9")
    assert summary([finding]) == [(GPUS, Level.ERROR)] and "has 8" in finding.message


@pytest.mark.parametrize(
    ("given", "environment", "started_here", "asked"),
    [
        ("b:6379", "a:6379", "c:6379", "b:6379"),
        ("auto", "a:6379", "c:6379", "a:6379"),
        ("auto", None, "c:6379", "c:6379"),
        (None, "auto", "c:6379", "c:6379"),
        ("auto", None, None, "auto"),
        ("local", "a:6379", "c:6379", None),
        (None, "local", "c:6379", None),
    ],
)
def test_the_cluster_is_the_one_that_ray_will_connect_to(
    monkeypatch, tmp_path, given, environment, started_here, asked
):
    """As `ray.init` chooses: its address unless that is "auto", then RAY_ADDRESS, then the last `ray start` of this machine."""
    if environment:
        monkeypatch.setenv("RAY_ADDRESS", environment)
    if started_here:
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(started_here)
    monkeypatch.setattr(machine, "_of_cluster", lambda address: (8, 64) if address == asked else (0, 0))
    monkeypatch.setattr(machine, "accelerator_count", lambda: 8 if asked is None else 0)
    assert found(f"{GPUS}=8", *([f"+ray_kwargs.ray_init.address='{given}'"] if given else [])) == []


def test_a_cluster_that_another_user_names_is_not_joined(monkeypatch, tmp_path):
    """Every user may write into Ray's directory, and whoever owns a cluster runs code in the driver that joins it."""
    (tmp_path / "ray").mkdir()
    file = tmp_path / "ray" / "ray_current_cluster"
    file.write_text(CLOSED)
    assert found() != []
    monkeypatch.setattr(machine.os, "getuid", lambda: file.stat().st_uid + 1)
    if file.stat().st_uid == 0:  # whom everybody trusts
        os.chown(file, 2, -1)
    monkeypatch.setattr(machine, "accelerator_count", lambda: 8)
    assert found() == []


@pytest.mark.parametrize("trains", [True, False])
def test_cpus_are_counted_for_ray_waits_forever_for_those_that_it_does_not_have(monkeypatch, trains):
    """3 for each GPU, and those of the driver, of the queue's controller and of its storage."""
    cpus, storage = "ray_kwargs.ray_init.num_cpus", "transfer_queue.backend.SimpleStorage.num_data_storage_units=1"
    [finding] = found(f"{cpus}=5", storage, *ONE_GPU, trains=trains)
    assert summary([finding]) == [(cpus, Level.ERROR)] and f"set {cpus}=6" in finding.message
    assert found(f"{cpus}=6", storage, *ONE_GPU, trains=trains) == []
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 5)
    assert summary(found(storage, *ONE_GPU, trains=trains)) == ([(cpus, Level.ERROR)] if trains else [])
    pool = ["reward.reward_model.enable=true", "reward.reward_model.enable_resource_pool=true"]
    of_reward = [f"reward.reward_model.{name}=1" for name in ("nnodes", "n_gpus_per_node")]
    [finding] = found(f"{cpus}=6", storage, *ONE_GPU, *pool, *of_reward, trains=trains)
    assert f"set {cpus}=9" in finding.message


def parameters_of(directory):
    with safe_open(next(directory.glob("*.safetensors")), framework="pt") as opened:
        return sum(opened.get_tensor(name).numel() for name in opened.keys())  # noqa: SIM118


CONTENTS = "actor_rollout_ref.actor.checkpoint.save_contents"


@pytest.mark.parametrize(
    ("overrides", "needed"),
    [
        (["trainer.max_actor_ckpt_to_keep=1"], 2 * 12),
        (["trainer.max_actor_ckpt_to_keep=2"], 2 * 12),
        (["trainer.max_actor_ckpt_to_keep=5"], 5 * 12),
        (["trainer.max_actor_ckpt_to_keep=null"], 10 * 12),
        (["trainer.max_actor_ckpt_to_keep=0"], 10 * 12),
        (["trainer.max_actor_ckpt_to_keep=5", "trainer.total_training_steps=8"], 2 * 12),
        (["trainer.max_actor_ckpt_to_keep=2", "actor_rollout_ref.model.lora_rank=8"], 2 * 4),
        (["trainer.max_actor_ckpt_to_keep=2", f"{CONTENTS}=[model,hf_model,extra]"], 2 * (4 + 2)),
    ],
)
def test_checkpoints_that_do_not_fit_on_the_disk_are_named_and_a_byte_less_is_not(
    overrides, needed, tmp_path, monkeypatch
):
    """Bytes a parameter of all that are kept at once, of 50 steps with a save every 5; no disk of this machine is full."""
    run = [f"actor_rollout_ref.model.path={CHECKPOINT}", f"trainer.default_local_dir={tmp_path}/not/there", *ONE_GPU]
    run += ["trainer.save_freq=5", "trainer.total_training_steps=50", *overrides]
    needed *= parameters_of(CHECKPOINT)
    for free, trains, expected in (
        (needed, True, []),
        (needed - 1, True, [("trainer.default_local_dir", Level.WARNING)]),
        (needed - 1, False, [("trainer.default_local_dir", Level.NOT_CHECKED)]),
    ):
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda place, free=free: SimpleNamespace(free=free))
        assert summary(found(*run, trains=trains)) == expected
    assert found(*run, "trainer.save_freq=-1") == []
