"""The plugin as an installed distribution: entry points, registries and configuration groups in fresh processes."""

import importlib.metadata
import os
import subprocess
import sys

import hydra
import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from verl.trainer.ppo import core_algos
from verl.utils.config import omega_conf_to_dataclass

from verl_trgrpo.core.shaping import Linear, Sigmoid, Uniform

ALGORITHMS = ["grpo", "tr_grpo", "grpo_sg", "tr_grpo_reverse", "advantage_reweighting", "dr_grpo", "dapo_clip"]
RELATED = {
    "aspo": ("tr_grpo", "grpo"),
    "top_entropy": ("tr_grpo", "grpo"),
    "reinforce_rej": ("vanilla", "reinforce_rej"),
    "ha_dw": ("vanilla", "ha_dw"),
}


def compose(name, *overrides):
    GlobalHydra.instance().clear()
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose(name, overrides=list(overrides))


def actor_of(config):
    # veRL fills these two in from the command line of every recipe.
    config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu = 1
    config.actor_rollout_ref.rollout.n = 8
    return omega_conf_to_dataclass(config.actor_rollout_ref.actor)


def fresh(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, cwd="/", capture_output=True, text=True, check=False
    )


def test_entry_points_are_installed():
    assert "trgrpo" in importlib.metadata.entry_points(group="verl.plugins").names
    assert "trgrpo_cpu" in importlib.metadata.entry_points(group="vllm.general_plugins").names


def test_import_verl_is_enough_in_a_fresh_process():
    result = fresh(
        "import verl\nfrom verl.trainer.ppo.core_algos import get_policy_loss_fn, get_adv_estimator_fn\n"
        "get_policy_loss_fn('tr_grpo')\n"
        "for name in ('tr_grpo', 'reinforce_rej', 'ha_dw'): get_adv_estimator_fn(name)\n"
        "from verl.workers import engine_workers\nprint('WRAPPED', hasattr(engine_workers.ppo_loss, '__wrapped__'))"
    )
    assert result.returncode == 0, result.stderr
    assert "WRAPPED True" in result.stdout


def test_the_core_needs_no_verl():
    result = fresh(
        "import sys\nimport verl_trgrpo.core.objective, verl_trgrpo.core.shaping, verl_trgrpo.core.advantages\n"
        "print('LOADED', sorted(m for m in ('verl', 'ray', 'vllm', 'hydra') if m in sys.modules))"
    )
    assert "LOADED []" in result.stdout, result.stderr


def test_a_broken_plugin_is_not_silent():
    """veRL logs a failing plugin at DEBUG level; this one speaks up."""
    result = fresh(
        "import sys\nsys.modules['verl_trgrpo.core.objective'] = None\nimport verl\nprint('DONE')",
    )
    assert "DONE" in result.stdout
    assert "verl-trgrpo doctor" in result.stderr


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("stock", [True, False])
def test_the_switch_on_stock_and_own_configuration(algorithm, stock):
    config = (
        compose("ppo_trainer", f"+algorithm={algorithm}")
        if stock
        else compose("trgrpo_trainer", f"algorithm={algorithm}")
    )
    actor = actor_of(config)
    expected_mode = "vanilla" if algorithm in ("grpo", "dr_grpo", "dapo_clip") else "tr_grpo"
    assert actor.policy_loss.loss_mode == expected_mode
    assert config.algorithm.adv_estimator == "grpo"
    if expected_mode == "tr_grpo":
        linear = algorithm == "advantage_reweighting"
        assert isinstance(actor.policy_loss.shaping, Linear if linear else Sigmoid)
        assert actor.policy_loss.shaping.reverse is (algorithm == "tr_grpo_reverse")
    assert config.algorithm.norm_adv_by_std_in_grpo is (algorithm != "dr_grpo")
    assert actor.loss_agg_mode == ("seq-mean-token-sum-norm" if algorithm == "dr_grpo" else "token-mean")
    assert actor.clip_ratio_high == (0.28 if algorithm == "dapo_clip" else 0.2)


@pytest.mark.parametrize("algorithm", RELATED)
@pytest.mark.parametrize("stock", [True, False])
def test_related_methods_on_stock_and_own_configuration(algorithm, stock):
    config = (
        compose("ppo_trainer", f"+algorithm={algorithm}")
        if stock
        else compose("trgrpo_trainer", f"algorithm={algorithm}")
    )
    actor = actor_of(config)
    assert (actor.policy_loss.loss_mode, config.algorithm.adv_estimator) == RELATED[algorithm]
    if algorithm in ("aspo", "top_entropy"):
        assert isinstance(actor.policy_loss.shaping, Uniform)
        assert actor.policy_loss.ratio == ("flipped" if algorithm == "aspo" else "plain")
        assert actor.policy_loss.top_entropy == (0.2 if algorithm == "top_entropy" else None)
    else:
        rewards = torch.ones(4, 2)
        arguments = {"token_level_rewards": rewards, "response_mask": rewards, "index": np.array(list("aabb"))}
        advantages, _ = core_algos.get_adv_estimator_fn(algorithm)(**arguments, config=config.algorithm)
        assert not advantages.any()


@pytest.mark.parametrize(
    ("override", "complaint"),
    [("reinforce_rej.baseline=mean", "baseline='mean'"), ("ha_dw.forgetting=2", "forgetting=2")],
)
def test_mistakes_of_an_estimator_come_out_when_its_node_is_built(override, complaint):
    name = override.split(".")[0]
    right = omega_conf_to_dataclass(compose("trgrpo_trainer", f"algorithm={name}").algorithm)
    assert getattr(right, name) == type(getattr(right, name))()
    with pytest.raises(Exception, match=complaint):
        omega_conf_to_dataclass(compose("trgrpo_trainer", f"algorithm={name}", f"algorithm.{override}").algorithm)


def test_reinforce_rej_counts_as_the_actor_does():
    config = compose("trgrpo_trainer", "algorithm=reinforce_rej", "actor_rollout_ref.actor.loss_agg_mode=token-sum")
    assert config.algorithm.reinforce_rej.loss_agg_mode == "token-sum"


def test_any_parameter_from_the_command_line():
    loss = "actor_rollout_ref.actor.policy_loss"
    config = compose(
        "trgrpo_trainer", f"{loss}.shaping.tau=6", f"{loss}.placement=inside", f"{loss}.normalize=token_mean",
        f"{loss}.prob_source=old", f"{loss}.kl=scaled",
    )  # fmt: skip
    policy_loss = actor_of(config).policy_loss
    assert policy_loss.shaping == Sigmoid(tau=6)
    options = (policy_loss.placement, policy_loss.normalize, policy_loss.prob_source, policy_loss.kl)
    assert options == ("inside", "token_mean", "old", "scaled")


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("shaping.name=sigmoit", "Did you mean 'sigmoid'"),
        ("shaping.tau=0.1111", "inverse temperature"),
        ("shaping.tau=-1", "tau=-1"),
        ("shaping.gamma=2", "no parameter gamma"),
        ("placement=middle", "placement='middle'"),
    ],
)
def test_mistakes_come_out_when_the_run_is_configured(override, complaint):
    config = compose("trgrpo_trainer", f"actor_rollout_ref.actor.policy_loss.{override}")
    with pytest.raises(Exception, match=complaint):
        actor_of(config)


@pytest.mark.parametrize("normalize_by_std", [True, False])
def test_the_estimator_agrees_with_the_hosts(normalize_by_std):
    generator = torch.Generator().manual_seed(0)
    rewards = torch.zeros(24, 7)
    rewards[:, -1] = torch.randn(24, generator=generator)
    mask = (torch.arange(7)[None] < torch.randint(1, 8, (24, 1), generator=generator)).float()
    index = np.array([f"uid-{i % 6}" for i in range(24)], dtype=object)
    arguments = {"token_level_rewards": rewards, "response_mask": mask, "index": index}
    host, _ = core_algos.get_adv_estimator_fn("grpo")(**arguments, norm_adv_by_std_in_grpo=normalize_by_std)
    config = {"norm_adv_by_std_in_grpo": normalize_by_std}
    ours, returns = core_algos.get_adv_estimator_fn("tr_grpo")(**arguments, config=config)
    torch.testing.assert_close(ours, host, rtol=1e-5, atol=1e-6)
    assert returns is ours
