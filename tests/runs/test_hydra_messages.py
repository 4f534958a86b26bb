"""What Hydra cannot compose is a line with a remedy that works."""

import pytest

from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.runs.compose import compose

SHAPING = "actor_rollout_ref.actor.policy_loss.shaping"


def problem(source, *overrides):
    with pytest.raises(InvalidInputError) as caught:
        compose(source, overrides)
    [message] = caught.value.messages
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("overrides", "shaping", "takes"),
    [
        (["shaping=power"], "power", "gamma, lower"),
        (["algorithm=cppo"], "cppo", "delta, min_weight, prefix_delta"),
        (["shaping=uniform"], "uniform", "none"),
        (["shaping=power", f"{SHAPING}.mu=1", "trainer.total_epoch=2"], "power", "gamma, lower"),
    ],
)
def test_a_parameter_of_another_shaping_is_answered_with_those_of_the_chosen_one(overrides, shaping, takes):
    message = problem("trgrpo_trainer", f"{SHAPING}.tau=3", *overrides)
    assert f"shaping={shaping} has no parameter" in message and f"takes {takes}" in message
    assert "did you mean" not in message and "+" not in message


def test_a_recipe_s_own_shaping_counts_too(tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [trgrpo_trainer, override shaping: threshold, _self_]")
    assert "shaping=threshold has no parameter tau; it takes eta" in problem(tmp_path / "mine.yaml", f"{SHAPING}.tau=3")


def test_a_function_of_the_user_s_own_may_have_parameters_of_its_own():
    assert f"+{SHAPING}.mine=" in problem("trgrpo_trainer", "shaping=custom", f"{SHAPING}.mine=3")


def test_an_algorithm_without_token_weights_takes_no_shaping():
    for override in ("shaping=power", f"{SHAPING}.tau=3"):
        message = problem("trgrpo_trainer", "algorithm=grpo", override)
        assert "no token weights" in message and "tr_grpo" in message


def test_a_key_that_the_chosen_groups_lack_is_not_its_own_remedy():
    message = problem("trgrpo_trainer", "algorithm=grpo", "actor_rollout_ref.actor.policy_loss.placement=inside")
    assert "did you mean actor_rollout_ref.actor.policy_loss.placement?" not in message


@pytest.mark.parametrize(
    ("defaults", "parts"),
    [
        ("[ppo_trainr, _self_]", ["ppo_trainr", "did you mean ppo_trainer?"]),
        ("[ppo_trainer, bas, _self_]", ["bas", "did you mean base?"]),
        ("[ppo_trainer, zebra, _self_]", ["zebra", "does not exist"]),
        ("[ppo_trainer, {algoritm: tr_grpo}, _self_]", ["algoritm", "did you mean algorithm: tr_grpo?"]),
        ("[ppo_trainer, {zebra: tr_grpo}, _self_]", ["group zebra", "does not exist"]),
        ("[ppo_trainer, {algorithm: tr_grp}, _self_]", ["algorithm=tr_grp", "did you mean tr_grpo?"]),
        ("ppo_trainer", ["list", "[ppo_trainer, _self_]"]),
    ],
)
def test_a_mistake_in_a_defaults_list_is_a_line_with_the_remedy(tmp_path, defaults, parts):
    (tmp_path / "base.yaml").write_text("a: 1")
    (tmp_path / "mine.yaml").write_text(f"defaults: {defaults}")
    message = problem(tmp_path / "mine.yaml")
    assert all(part in message for part in parts), message
    assert "Config search path" not in message and "critic" not in message


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("platform=gpu", ["platform=gpu", "did you mean accelerator?"]),
        ("platform=cuda", ["did you mean accelerator?"]),
        ("platform=cpuu", ["did you mean cpu?"]),
        ("data.train_batch_size", ["data.train_batch_size=..."]),
        ("ppo_trainer", ["configuration", "--config-name ppo_trainer"]),
        ("kk_quickstart", ["--config-name kk_quickstart"]),
        ("trainer.logger=console,wandb", ["write trainer.logger=[console,wandb]"]),
        ("critic=null", ["critic", "name of an option"]),
    ],
)
def test_a_wrong_override_is_a_line_with_the_remedy(override, parts):
    message = problem("trgrpo_trainer", override)
    assert all(part in message for part in parts), message
    assert "--multirun" not in message and "EOF" not in message
