"""The cached compositions that other tests use are those of ``compose``."""

import pytest

from tests.conftest import composed
from verl_trgrpo.runs.compose import compose

LOSS = "actor_rollout_ref.actor.policy_loss"


@pytest.mark.parametrize(
    ("source", "overrides", "platform"),
    [
        (
            "trgrpo_trainer",
            ["algorithm=dr_grpo", "data.max_response_length=7", "trainer.logger=[console,wandb]", "data.seed=null"],
            None,
        ),
        (
            "ppo_trainer",
            ["+algorithm=tr_grpo", f"{LOSS}.placement=inside", f"{LOSS}.shaping={{name: power}}", "++trainer.mine={a: 1}",
             "+data.own.deep=2", "~trainer.save_freq"],
            None,
        ),
        (
            "kk_quickstart",
            ["trainer.experiment_name=trgrpo", "actor_rollout_ref.model.override_config.attn_implementation=eager"],
            "cpu",
        ),
    ],
)  # fmt: skip
def test_a_cached_composition_is_that_of_hydra(source, overrides, platform):
    cached, run = composed(overrides, source, platform), compose(source, overrides, platform)
    assert cached.config == run.config
    assert (cached.choices, cached.added, cached.on_cpu) == (run.choices, run.added, run.on_cpu)
