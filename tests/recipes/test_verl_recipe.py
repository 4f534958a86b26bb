"""The folder in verl-recipe's form: its scripts start veRL itself, with what this project's own recipe composes."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import composed
from verl_trgrpo.runs.compose import flat

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "recipes/verl_recipe/tr_grpo"
# Names, what the launcher adds, and a place for options.
OWN = ("trainer.project_name", "trainer.experiment_name", "trainer.default_local_dir", "trainer.logger",
       "trainer.max_actor_ckpt_to_keep", "data.seed", "reward.custom_reward_function.reward_kwargs")  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def overrides_of(script, tmp_path, *words):
    """What a script would give to veRL; a stand-in for python3 writes it down."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python3"
    python.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\n')
    python.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    subprocess.run(["bash", FOLDER / script, *words], env=environment, check=True)
    module, option, name, *overrides = (tmp_path / "words").read_text().splitlines()[1:]
    assert (module, option, name) == ("verl.trainer.main_ppo", "--config-name", "trgrpo_trainer")
    return overrides


@pytest.mark.parametrize(
    ("script", "algorithm"), [("run_qwen2_5_3b_kk.sh", "tr_grpo"), ("run_qwen2_5_3b_kk_grpo.sh", "grpo")]
)
def test_a_script_composes_what_the_recipe_does(script, algorithm, tmp_path):
    overrides = overrides_of(script, tmp_path)
    found = flat(composed(overrides, "trgrpo_trainer").config)
    source = ROOT / "recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml"
    recipe = flat(composed([f"algorithm={algorithm}"], source).config)
    differing = {key for key in found.keys() | recipe.keys() if found.get(key) != recipe.get(key)}
    assert {
        key for key in differing if key not in OWN and not key.startswith("actor_rollout_ref.rollout.agent")
    } == set()


def test_further_words_come_last_and_win(tmp_path):
    overrides = overrides_of("run_qwen2_5_3b_kk.sh", tmp_path, "trainer.total_epochs=1")
    assert composed(overrides, "trgrpo_trainer").config.trainer.total_epochs == 1


def test_the_requirement_is_in_the_form_of_that_repository():
    lines = (FOLDER / "REQUIRED_VERL.txt").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert {"UPSTREAM", "MODE", "TAG", "PIP_INSTALL", "RECIPE_FOLDER"} <= found.keys()
    assert found["RECIPE_FOLDER"] == FOLDER.name and "0.9" in (FOLDER / "README.md").read_text().split("\n\n")[1]
