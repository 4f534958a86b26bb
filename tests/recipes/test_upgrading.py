"""The table of docs/upgrading-a-verl-recipe.md, with a script in the form of veRL's examples."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hydra._internal.utils import get_args_parser

from tests.conftest import composed
from verl_trgrpo.cli.main import main

PAGE = Path(__file__).parents[2] / "docs/upgrading-a-verl-recipe.md"
ROWS = re.findall(r"^\| [^|]+ \| `(bash SCRIPT\.sh [^`]+)` \|$", PAGE.read_text(), re.MULTILINE)
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

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def run_row(row, tmp_path, stub):
    """Run the part of a row that starts the script, with a stand-in for python3."""
    script = tmp_path / "SCRIPT.sh"
    script.write_text(SCRIPT.format(data=tmp_path))
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python3"
    python.write_text(stub)
    python.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    command = row.partition(";")[0].replace("SCRIPT.sh", shlex.quote(str(script)))
    subprocess.run(["bash", "-c", command], env=environment, check=True, cwd=tmp_path, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_composes_the_scripts_run_with_the_algorithm(row, tmp_path):
    run_row(row.replace(" > job.yaml", ""), tmp_path, f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\n')
    module, *words = (tmp_path / "words").read_text().splitlines()[1:]
    assert module == "verl.trainer.main_ppo"
    given = get_args_parser().parse_args(words)
    config = composed(given.overrides, given.config_name or "ppo_trainer").config
    actor = config.actor_rollout_ref.actor
    assert (actor.policy_loss.loss_mode, actor.policy_loss.shaping.name) == ("tr_grpo", "sigmoid")
    assert (config.algorithm.adv_estimator, config.data.train_batch_size, config.trainer.total_epochs) == (
        "grpo",
        1024,
        15,
    )
    assert actor.strategy == ("megatron" if "megatron" in row else "fsdp")
    own_rewards = "verl_trgrpo" in str(config.reward.custom_reward_function.path)
    assert own_rewards is ("trgrpo_trainer" in row)


def test_the_check_before_it_judges_what_the_script_composes(tmp_path, capsys):
    [row] = [row for row in ROWS if "job.yaml" in row]
    run_row(row, tmp_path, f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    assert main(["validate", str(tmp_path / "job.yaml"), "--no-files"]) == 0, capsys.readouterr()
    assert main(["validate", str(tmp_path / "job.yaml"), "--no-files", "trainer.n_gpus_per_node=7"]) == 1


def test_the_page_has_the_rows_that_this_file_runs():
    assert len(ROWS) == 4
