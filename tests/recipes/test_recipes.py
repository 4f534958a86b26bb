"""Every shipped recipe with every algorithm, composed and validated with veRL's own classes."""

from pathlib import Path

import pytest

from tests.runs.validation import validate
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.compose import compose

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "recipes"
# recipes/compare holds studies, which tests/runs/compare reads.
RECIPES = sorted(path for path in FOLDER.glob("*/*.yaml") if path.stem != "base" and path.parent.name != "compare")
ALGORITHMS = sorted(path.stem for path in (ROOT / "verl_trgrpo/config/algorithm").glob("*.yaml"))


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
    assert len(ALGORITHMS) >= 7


# Every recipe with two algorithms, and one recipe with all of them.
PAIRS = [(recipe, algorithm) for recipe in RECIPES for algorithm in ("grpo", "tr_grpo")]
PAIRS += [(RECIPES[0], algorithm) for algorithm in ALGORITHMS if algorithm not in ("grpo", "tr_grpo")]


@pytest.mark.parametrize(("recipe", "algorithm"), PAIRS, ids=lambda value: getattr(value, "stem", value))
def test_a_recipe_validates_with_every_algorithm(recipe, algorithm):
    report = validate(str(recipe), [f"algorithm={algorithm}"], need_files=False)
    assert report.messages(Level.ERROR) == []
    # The objective as typeset has the weights in the clip, which silences many tokens.
    assert report.messages(Level.WARNING) == [] or algorithm == "tr_grpo_published"
    assert report.config.trainer.default_local_dir == f"runs/{recipe.parent.name}/{recipe.stem}-{algorithm}"
    # Only what is not on this machine is left open: two data files, the model, and prompts against its tokenizer.
    assert len(report.messages(Level.NOT_CHECKED)) == 4


@pytest.mark.parametrize("task", ["knights_and_knaves", "deepscaler", "search_qa"])
def test_the_algorithm_wins_over_the_recipe(task):
    recipe = next(path for path in RECIPES if path.parent.name == task)

    def actor(algorithm):
        return compose(recipe, [f"algorithm={algorithm}"]).config.actor_rollout_ref.actor

    assert actor("dapo_clip").clip_ratio_high == 0.28
    assert actor("dr_grpo").loss_agg_mode == "seq-mean-token-sum-norm"
    assert actor("tr_grpo").loss_agg_mode == "token-mean"
    assert actor("tr_grpo").policy_loss.loss_mode == "tr_grpo"


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_the_header_says_what_is_known(recipe):
    header = "\n".join(line for line in recipe.read_text().split("\n\n")[0].splitlines())
    for part in ("Reproduces:", "Differs:", "Hardware:", "Command:", f"run.sh {name_of(recipe)}"):
        assert part in header, part


def test_the_settings_of_the_logic_puzzles_are_the_source_s():
    config = compose(FOLDER / "knights_and_knaves/qwen2.5-3b-instruct.yaml").config
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert (config.data.train_batch_size, rollout.n, rollout.temperature) == (64, 8, 0.7)
    assert (config.data.max_prompt_length, config.data.max_response_length) == (400, 4096)
    assert actor.ppo_mini_batch_size * rollout.n == 256
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c) == (0.20, 0.24, 10.0)
    assert (actor.optim.lr, actor.loss_agg_mode) == (1e-6, "token-mean")
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (True, 0.001, "low_var_kl")
    assert config.trainer.total_epochs == 5
