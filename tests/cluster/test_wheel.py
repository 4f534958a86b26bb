"""The package as users get it: a wheel, installed away from the checkout."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import venv
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
    # Two thirds are the quickstart's model, whose weights hardly compress; the rest is the code of all rooms.
    assert wheel.stat().st_size <= 2.3e6


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


def packed(name: str, folder: Path) -> None:
    """Pack an installed pure-Python distribution as the wheel that it came from."""
    found = importlib.metadata.distribution(name)
    with zipfile.ZipFile(folder / f"{name}-{found.version}-py3-none-any.whl", "w") as archive:
        for path in found.files or ():
            if ".." not in path.parts and path.suffix != ".pyc":
                archive.write(str(path.locate()), str(path))


def test_the_judge_works_where_nothing_of_a_training_is_installed(wheel, tmp_path):
    for name in ("lark", "mpmath"):
        packed(name, tmp_path)
    shutil.copy(wheel, tmp_path)
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env/bin/python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index"]
    subprocess.run([*command, "--find-links", str(tmp_path), "verl-trgrpo[rewards]"], check=True)
    code = (
        "import importlib.metadata, sys\n"
        "from verl_trgrpo.judge import judge_answer\n"
        r"print([judge_answer(fr'\boxed{{{answer}}}', r'3\sqrt{13}').right for answer in (r'\sqrt{117}', r'\sqrt{118}')])"
        "\nprint(sorted(each.name for each in importlib.metadata.distributions()))\n"
        "print({'torch', 'numpy', 'verl', 'pydantic'} & sys.modules.keys())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [python, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["[True, False]", "['lark', 'mpmath', 'verl-trgrpo']", "set()"]
