"""Every shipped recipe passes every check, and says what it reproduces."""

from pathlib import Path

import pytest

from tests.checks.validation import validate
from tests.conftest import composed
from verl_trgrpo.common.findings import Level

FOLDER = Path(__file__).parents[2] / "recipes"
EXAMPLES = FOLDER.parent / "examples"
RECIPES = sorted(path for path in FOLDER.glob("*/*.yaml") if path.stem != "base")


def name_of(path):
    return f"{path.parent.name}/{path.stem}"


def test_the_paper_s_experiments_have_recipes():
    assert {name_of(path) for path in RECIPES} >= {
        "knights_and_knaves/qwen2.5-3b-instruct",
        "knights_and_knaves/qwen2.5-7b-instruct-1m",
        "deepscaler/deepseek-r1-distill-qwen-1.5b",
        "deepscaler/qwen2.5-7b",
        "search_qa/qwen2.5-3b",
    }


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_a_recipe_has_no_findings(recipe):
    report = validate(recipe, need_files=False)
    # GPUs and search servers are those of the machine that trains, which this one need not be.
    elsewhere = {"trainer.n_gpus_per_node", "actor_rollout_ref.rollout.custom.search.url"}
    found = [finding for finding in report.findings if finding.where not in elsewhere]
    # Data and model are not on this machine: two files, the model, and prompts against its tokenizer.
    assert [finding.level for finding in found] == [Level.NOT_CHECKED] * 4
    assert report.config.trainer.default_local_dir == f"runs/{recipe.parent.name}/{recipe.stem}-tr_grpo"


def test_the_lora_command_of_a_recipe_has_no_findings():
    recipe = FOLDER / "deepscaler/qwen3-4b.yaml"
    command = recipe.read_text().partition("# With LoRA")[2].partition("\n\n")[0].replace("\\\n#", " ")
    overrides = [word for word in command.split() if "=" in word]
    assert len(overrides) == 6
    report = validate(recipe, overrides, need_files=False)
    assert report.config.actor_rollout_ref.model.lora_rank == 32
    elsewhere = {"trainer.n_gpus_per_node"}
    assert [
        each for each in report.findings if each.level is not Level.NOT_CHECKED and each.where not in elsewhere
    ] == []


@pytest.mark.parametrize("name", ["kk_quickstart", EXAMPLES / "small_lm.yaml", EXAMPLES / "small_lm_puzzles.yaml"])
def test_a_demonstration_starts_without_warnings(name):
    seeds = ["data.seed=1", "actor_rollout_ref.rollout.seed=1"]
    report = validate(name, ["platform=cpu", *seeds], need_files=False)
    assert [finding for finding in report.findings if finding.level is not Level.NOT_CHECKED] == []


def test_the_algorithm_wins_over_the_recipe():
    def actor(algorithm):
        return composed(
            [f"algorithm={algorithm}"], FOLDER / "deepscaler/qwen2.5-7b.yaml"
        ).config.actor_rollout_ref.actor

    assert actor("dapo_clip").clip_ratio_high == 0.28
    assert actor("dr_grpo").loss_agg_mode == "seq-mean-token-sum-norm"
