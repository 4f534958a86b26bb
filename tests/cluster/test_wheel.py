"""The package as users get it: a wheel, installed away from the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.scripts import ROOT


def tracked_files(*directories: str) -> list[str]:
    command = ["git", "ls-files", "-z", *directories]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in output.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out, source = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("source")
    for name in tracked_files("."):  # a copy: a stale build/ in the checkout would get into the wheel
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = out.glob("verl_trgrpo-*.whl")
    return built


def test_everything_is_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = tracked_files("verl_trgrpo", "hydra_plugins")
    assert len(tracked) > 40
    assert set(tracked) <= names
    outside = ("tests/", "benchmarks/", "data_prep/", "recipes/", "studies/", "examples/")
    assert not [name for name in names if name.startswith(outside)]
    # Three quarters are the quickstart's model, whose weights hardly compress.
    assert wheel.stat().st_size <= 2.1e6


def test_it_works_outside_the_checkout(wheel, tmp_path):
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)], check=True
    )
    code = (
        "import verl, verl_trgrpo, hydra\n"
        "from verl.trainer.ppo.core_algos import get_policy_loss_fn\n"
        "from verl_trgrpo.demos.puzzles import CHECKPOINT\n"
        "with hydra.initialize_config_module('verl.trainer.config', version_base=None):\n"
        "    loss = hydra.compose('kk_quickstart', ['algorithm=grpo_sg']).actor_rollout_ref.actor.policy_loss.loss_mode\n"
        "print(verl_trgrpo.__file__, get_policy_loss_fn('tr_grpo').__code__.co_filename, loss,"
        " (CHECKPOINT / 'model.safetensors').is_file(), sep='|')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(site)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    package, loss_file, mode, checkpoint = result.stdout.strip().splitlines()[-1].split("|")
    assert package.startswith(str(site)) and loss_file.startswith(str(site))
    assert (mode, checkpoint) == ("tr_grpo", "True")
