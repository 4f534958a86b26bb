"""The plugin as an installed distribution: entry points, registries and configuration groups in fresh processes."""

import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from verl.trainer.ppo import core_algos
from verl.utils.config import omega_conf_to_dataclass

from tests.conftest import composed
from verl_trgrpo.core import DifficultyOptions, available_shapings, make_shaping

# loss mode, estimator, shaping
ALGORITHMS = {
    "grpo": ("vanilla", "grpo", None),
    "tr_grpo": ("tr_grpo", "grpo", "sigmoid"),
    "tr_grpo_published": ("tr_grpo", "grpo", "sigmoid"),
    "tr_grpo_token_mean": ("tr_grpo", "grpo", "sigmoid"),
    "tr_grpo_reverse": ("tr_grpo", "grpo", "sigmoid"),
    "grpo_sg": ("tr_grpo", "grpo", "sigmoid"),
    "advantage_reweighting_current": ("tr_grpo", "grpo", "linear"),
    "advantage_reweighting_old": ("tr_grpo", "grpo", "linear"),
    "dr_grpo": ("vanilla", "grpo", None),
    "dapo_clip": ("vanilla", "grpo", None),
    "aspo": ("aspo", "grpo", "uniform"),
    "top_entropy": ("tr_grpo", "grpo", "top_entropy"),
    "reinforce_rej": ("vanilla", "reinforce_rej", None),
    "ha_dw": ("vanilla", "ha_dw", None),
    "stapo": ("tr_grpo", "grpo", "stapo"),
    "random_subset": ("tr_grpo", "grpo", "random_subset"),
    "cppo": ("tr_grpo", "grpo", "cppo"),
    "w_reinforce": ("vanilla", "w_reinforce", None),
    "dppo_tv": ("dppo_tv", "grpo", None),
    "dppo_kl": ("dppo_kl", "grpo", None),
    "tr_dppo_tv": ("tr_dppo_tv", "grpo", "sigmoid"),
    "tr_dppo_kl": ("tr_dppo_kl", "grpo", "sigmoid"),
    "tr_dapo_clip": ("tr_grpo", "grpo", "sigmoid"),
    "tr_ha_dw": ("tr_grpo", "ha_dw", "sigmoid"),
}
# Bounds of the ratio or, for DPPO, of the change of p; veRL's 0.2, 0.2 and 3 where nothing else is meant.
CLIPS = {
    "dapo_clip": (0.2, 0.28, 3.0),
    "tr_dapo_clip": (0.2, 0.28, 3.0),
    "cppo": (1.0, 1e4, 1e4),
    "dppo_tv": (0.15, 0.15, 1e4),
    "tr_dppo_tv": (0.15, 0.15, 1e4),
    "dppo_kl": (0.05, 0.05, 1e4),
    "tr_dppo_kl": (0.05, 0.05, 1e4),
}
LOSS = "actor_rollout_ref.actor.policy_loss"


def compose(name, *overrides):
    return composed(overrides, name).config


def actor_of(config):
    # veRL fills these two in from the command line of every recipe.
    config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu = 1
    config.actor_rollout_ref.rollout.n = 8
    return omega_conf_to_dataclass(config.actor_rollout_ref.actor)


def fresh(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, cwd="/", capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("first", ["ppo_loss", "config"])
def test_the_core_needs_no_verl_and_one_import_registers_everything_whichever_comes_first(first):
    result = fresh(
        "import sys\nimport verl_trgrpo.core\n"
        "print('LOADED', sorted(m for m in ('verl', 'ray', 'vllm', 'hydra') if m in sys.modules))\n"
        # These modules import veRL, which imports the plugin, before they are complete; `import verl` itself is the easy case.
        f"import verl_trgrpo.verl_plugin.{first}\n"
        "from verl.trainer.ppo.core_algos import get_policy_loss_fn, get_adv_estimator_fn\n"
        "get_policy_loss_fn('tr_grpo'), get_policy_loss_fn('aspo')\n"
        "for name in ('tr_grpo', 'reinforce_rej', 'ha_dw'): get_adv_estimator_fn(name)\n"
        "from verl.workers import engine_workers\nprint('WRAPPED', hasattr(engine_workers.ppo_loss, '__wrapped__'))"
    )
    assert result.returncode == 0, result.stderr
    assert "could not register" not in result.stderr
    assert "LOADED []" in result.stdout and "WRAPPED True" in result.stdout


def test_a_broken_plugin_is_not_silent():
    """veRL logs a failing plugin at DEBUG level; this one speaks up."""
    result = fresh(
        "import sys\nsys.modules['verl_trgrpo.core'] = None\nimport verl\nprint('DONE')",
    )
    assert "DONE" in result.stdout
    assert "verl-trgrpo doctor" in result.stderr


@pytest.mark.parametrize(
    ("algorithm", "stock"),
    [*((name, False) for name in ALGORITHMS), *((name, True) for name in ("tr_grpo_published", "dr_grpo", "tr_ha_dw"))],
)
def test_the_switch_on_own_and_stock_configuration(algorithm, stock):
    config = (
        compose("ppo_trainer", f"+algorithm={algorithm}")
        if stock
        else compose("trgrpo_trainer", f"algorithm={algorithm}")
    )
    actor = actor_of(config)
    policy_loss = actor.policy_loss
    shaping = getattr(policy_loss, "shaping", None)
    assert (policy_loss.loss_mode, config.algorithm.adv_estimator, shaping and shaping.name) == ALGORITHMS[algorithm]
    if shaping:
        # The defaults are written out.
        assert shaping == make_shaping(shaping.name, reverse=algorithm == "tr_grpo_reverse")
        assert policy_loss.placement == ("inside" if algorithm == "tr_grpo_published" else "outside")
        assert policy_loss.kl == ("literal" if algorithm == "tr_grpo_published" else "plain")
        divided = ("tr_grpo_token_mean", "stapo", "random_subset")
        assert policy_loss.normalize == ("token_mean" if algorithm in divided else "none")
        assert policy_loss.prob_source == ("old" if algorithm == "advantage_reweighting_old" else "current")
    assert actor.calculate_entropy is (algorithm in ("top_entropy", "stapo"))
    assert config.algorithm.norm_adv_by_std_in_grpo is (algorithm != "dr_grpo")
    assert actor.loss_agg_mode == ("seq-mean-token-sum-norm" if algorithm == "dr_grpo" else "token-mean")
    clip = (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c)
    assert clip == CLIPS.get(algorithm, (0.2, 0.2, 3.0))


def test_every_algorithm_and_every_shaping_has_a_file():
    files = resources.files("verl_trgrpo.config")
    assert {*ALGORITHMS} == {file.name.removesuffix(".yaml") for file in (files / "algorithm").iterdir()}
    assert {*available_shapings(), "custom"} == {
        file.name.removesuffix(".yaml") for file in (files / "shaping").iterdir()
    }


@pytest.mark.parametrize("name", available_shapings())
def test_any_shaping_by_one_word(name):
    actor = actor_of(compose("trgrpo_trainer", "algorithm=aspo", f"shaping={name}"))
    assert actor.policy_loss.shaping == make_shaping(name)
    assert actor.calculate_entropy is (name in ("top_entropy", "stapo"))


def test_weights_are_divided_by_their_mean_by_one_word():
    for algorithm in ("tr_grpo", "advantage_reweighting_old", "aspo"):
        config = compose("trgrpo_trainer", f"algorithm={algorithm}", "normalize=token_mean")
        assert actor_of(config).policy_loss.normalize == "token_mean"


def test_every_algorithm_has_a_row_in_the_readme():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert [name for name in ALGORITHMS if f"`{name}`" not in readme] == []


def test_a_loss_without_token_weights_is_refused_where_they_are_configured():
    with pytest.raises(Exception, match="loss_mode=gspo ignores shaping"):
        actor_of(compose("ppo_trainer", "+algorithm=tr_grpo", f"{LOSS}.loss_mode=gspo"))


def test_a_shaping_of_your_own():
    own = "tests.core.test_shaping"
    config = compose(
        "trgrpo_trainer", "shaping=custom", f"{LOSS}.shaping.name={own}.cosine", f"+{LOSS}.shaping.floor=0.3"
    )
    assert actor_of(config).policy_loss.shaping.parameters == {"floor": 0.3}
    actor = actor_of(compose("ppo_trainer", "+algorithm=tr_grpo", "shaping=custom", f"{LOSS}.shaping.name={own}.stapo"))
    assert actor.policy_loss.shaping.inputs == ("probs", "entropy", "advantages")
    assert actor.calculate_entropy is True


def test_the_estimator_s_node_is_what_it_takes_and_is_checked_when_it_is_built():
    config = compose("trgrpo_trainer", "algorithm=ha_dw").algorithm
    assert omega_conf_to_dataclass(config).ha_dw == DifficultyOptions()
    rewards = torch.ones(4, 2)
    arguments = {"token_level_rewards": rewards, "response_mask": rewards, "index": np.array(list("aabb"))}
    assert not core_algos.get_adv_estimator_fn("ha_dw")(**arguments, config=config)[0].any()
    with pytest.raises(Exception, match="forgetting=2"):
        omega_conf_to_dataclass(compose("trgrpo_trainer", "algorithm=ha_dw", "algorithm.ha_dw.forgetting=2").algorithm)
