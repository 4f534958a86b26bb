"""Scripts that start veRL itself: those of docs/upgrading-a-verl-recipe.md, and the folder in verl-recipe's form."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from verl.trainer import main_ppo

from tests.conftest import composed
from verl_trgrpo.cli.main import main
from verl_trgrpo.runs.keys import flat

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/upgrading-a-verl-recipe.md").read_text()
ROWS = re.findall(r"^\| [^|]+ \| `(bash SCRIPT\.sh [^`]+)` \|$", PAGE, re.MULTILINE)
SCRIPT = """set -x
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files={data}/train.parquet \\
    data.val_files={data}/test.parquet \\
    data.train_batch_size=1024 \\
    data.max_prompt_length=512 \\
    data.max_response_length=1024 \\
    data.filter_overlong_prompts=True \\
    data.truncation='error' \\
    actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct \\
    actor_rollout_ref.actor.optim.lr=1e-6 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32 \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.kl_loss_coef=0.001 \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32 \\
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=32 \\
    actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.n=5 \\
    trainer.logger='["console"]' \\
    trainer.n_gpus_per_node=8 \\
    trainer.save_freq=20 \\
    trainer.test_freq=5 \\
    trainer.total_epochs=15 "$@"
"""

FOLDER = ROOT / "recipes/verl_recipe/tr_grpo"
# Names, what the launcher adds, and a place for options.
OWN = ("trainer.project_name", "trainer.experiment_name", "trainer.default_local_dir", "trainer.logger",
       "trainer.max_actor_ckpt_to_keep", "data.seed", "reward.custom_reward_function.reward_kwargs",
       "actor_rollout_ref.rollout.agent")  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@pytest.fixture
def bash(tmp_path):
    """``bash(command)`` runs it in bash; instead of veRL, ``python3`` writes down its words, which are returned."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python3"
    environment = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}

    def run(command, stub=f'printf "%s\\n" "$@" > {tmp_path}/words'):
        python.write_text(f"#!/bin/sh\n{stub}\n")
        python.chmod(0o755)
        subprocess.run(["bash", "-c", command], env=environment, check=True, cwd=tmp_path, stderr=subprocess.DEVNULL)
        return (tmp_path / "words").read_text().splitlines()[1:] if (tmp_path / "words").exists() else []

    return run


@pytest.fixture
def of_row(tmp_path):
    """The part of a row that starts the script."""
    script = tmp_path / "SCRIPT.sh"
    script.write_text(SCRIPT.format(data=tmp_path))
    return lambda row: row.partition(";")[0].replace("SCRIPT.sh", shlex.quote(str(script)))


def run_of(words):
    """The configuration of ``python3 -m verl.trainer.main_ppo WORDS``."""
    module, *words = words
    assert module == "verl.trainer.main_ppo"
    given = get_args_parser().parse_args(words)
    return composed(given.overrides, given.config_name or "ppo_trainer").config


def test_the_page_has_the_rows_that_this_file_runs():
    assert len(ROWS) == 4


@pytest.mark.parametrize("row", ROWS)
def test_a_row_composes_the_scripts_run_with_the_algorithm(row, bash, of_row):
    config = run_of(bash(of_row(row)))
    actor, data, trainer = config.actor_rollout_ref.actor, config.data, config.trainer
    assert (actor.policy_loss.loss_mode, actor.policy_loss.shaping.name) == ("tr_grpo", "sigmoid")
    assert (config.algorithm.adv_estimator, data.train_batch_size, trainer.total_epochs) == ("grpo", 1024, 15)
    assert actor.strategy == ("megatron" if "megatron" in row else "fsdp")


def test_each_way_changes_what_the_page_says(bash, of_row):
    """The first only what the algorithm's file sets; the second also the keys of the list, and nothing else."""
    before = flat(run_of(bash(of_row("bash SCRIPT.sh"))))
    first, second = (flat(run_of(bash(of_row(row)))) for row in ROWS[:2])

    def changed(now, then):
        return {key for key in now.keys() | then.keys() if now.get(key) != then.get(key)}

    own = (
        "actor_rollout_ref.actor",
        "algorithm.",
        "trainer.experiment_name",
    )  # a name without a plus is the launcher's
    assert {key for key in changed(first, before) if not key.startswith(own)} == set()
    listed = re.findall(r"`((?:reward|trainer|actor_rollout_ref)\.[\w.]+)`", PAGE[: PAGE.index("| your script")])
    replaced = {key for key in changed(second, first) if not key.startswith(own)}
    assert {key for key in replaced if not key.startswith(tuple(listed))} == set()
    assert {key for key in listed if not any(f"{each}.".startswith(f"{key}.") for each in replaced)} <= {
        "actor_rollout_ref.rollout.n", "actor_rollout_ref.rollout.name", "trainer.logger", "actor_rollout_ref.rollout.agent",
        "reward.custom_reward_function.path", "trainer.experiment_name",
    }  # the script sets three of them itself  # fmt: skip


def test_the_check_judges_what_the_script_composes(tmp_path, bash, of_row, capsys, monkeypatch):
    row = ROWS[1]
    monkeypatch.setattr(sys, "argv", bash(f"{of_row(row)} --cfg job"))
    GlobalHydra.instance().clear()
    main_ppo.main()
    (tmp_path / "job.yaml").write_text(capsys.readouterr().out)
    job, run = (flat(each) for each in (composed([], tmp_path / "job.yaml").config, run_of(bash(of_row(row)))))
    names = {job.pop("trainer.experiment_name"), run.pop("trainer.experiment_name")}  # the launcher's is the algorithm
    assert (job, names) == (run, {"tr_grpo", "trgrpo" if "trgrpo_trainer" in row else "gsm8k"})
    assert main(["validate", str(tmp_path / "job.yaml"), "--no-files"]) == 0, capsys.readouterr()
    assert main(["validate", str(tmp_path / "job.yaml"), "--no-files", "trainer.n_gpus_per_node=7"]) == 1


def test_old_scripts_as_the_page_says(tmp_path, bash, capsys):
    stock = SCRIPT.format(data=tmp_path)
    script = tmp_path / "SCRIPT.sh"
    # Without "$@", and with a first word of its own: the word is in the script.
    script.write_text(stock.replace(' "$@"', "").replace("main_ppo ", "main_ppo +algorithm=tr_grpo "))
    assert run_of(bash(f"bash {script}")).actor_rollout_ref.actor.policy_loss.loss_mode == "tr_grpo"
    script.write_text("ENGINE=${1:-vllm}\n" + stock.replace("rollout.name=vllm", "rollout.name=$ENGINE"))
    words = bash(f"bash {script} +algorithm=tr_grpo")
    assert main(["validate", "ppo_trainer", *words[1:]]) == 1
    assert "rollout.name=+algorithm=tr_grpo: the value is an override itself" in capsys.readouterr().out
    # DAPO's settings stay with the plus; with this project's configuration and tr_dapo they are ours.
    dapo = [
        "actor_rollout_ref.actor.clip_ratio_high=0.3",
        "+reward.reward_kwargs.overlong_buffer_cfg.enable=true",
    ]
    assert composed(["+algorithm=tr_grpo", *dapo], "ppo_trainer").config.actor_rollout_ref.actor.clip_ratio_high == 0.3
    assert composed(["algorithm=tr_dapo"], "trgrpo_trainer").config.algorithm.filter_groups.enable is True


@pytest.mark.parametrize(
    ("first", "word"), [("ppo_trainer", "+algorithm=tr_grpo"), ("trgrpo_trainer", "algorithm=tr_grpo")]
)
def test_a_configuration_directory_of_the_script(first, word, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        f"hydra: {{searchpath: ['pkg://verl.trainer.config']}}\ndefaults: [{first}, _self_]\ntrainer: {{nnodes: 3}}\n"
    )
    config = composed([word], tmp_path / "mine.yaml").config
    assert (config.trainer.nnodes, config.actor_rollout_ref.actor.policy_loss.loss_mode) == (3, "tr_grpo")
    assert ("verl_trgrpo" in str(config.reward.custom_reward_function.path)) is (first == "trgrpo_trainer")


@pytest.mark.parametrize(
    ("script", "algorithm"), [("run_qwen2_5_3b_kk.sh", "tr_grpo"), ("run_qwen2_5_3b_kk_grpo.sh", "grpo")]
)
def test_a_script_composes_what_the_recipe_does_and_further_words_win(script, algorithm, bash):
    module, option, name, *overrides = bash(f"bash {FOLDER / script} trainer.total_epochs=7")
    assert (module, option, name) == ("verl.trainer.main_ppo", "--config-name", "trgrpo_trainer")
    found = flat(composed(overrides, name).config)
    source = ROOT / "recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml"
    recipe = flat(composed([f"algorithm={algorithm}", "trainer.total_epochs=7"], source).config)
    differing = {key for key in found.keys() | recipe.keys() if found.get(key) != recipe.get(key)}
    assert {key for key in differing if not key.startswith(OWN)} == set()


def test_the_requirement_is_in_the_form_of_that_repository():
    lines = (FOLDER / "REQUIRED_VERL.txt").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert {"UPSTREAM", "MODE", "TAG", "PIP_INSTALL", "RECIPE_FOLDER"} <= found.keys()
    assert found["RECIPE_FOLDER"] == FOLDER.name and "0.9" in (FOLDER / "README.md").read_text().split("\n\n")[1]
