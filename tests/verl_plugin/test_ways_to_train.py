"""The switch with veRL's other trainers and engines: composed, and built as veRL's workers build it."""

from importlib.util import find_spec
from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf
from verl.utils.config import omega_conf_to_dataclass

from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig

VERL = Path(find_spec("verl").submodule_search_locations[0])
TRAINERS = {
    "colocated, asynchronous": ("trainer/config", "ppo_trainer", "trainer.v1.trainer_mode=colocate_async"),
    "separate, asynchronous": ("trainer/config", "ppo_trainer", "trainer.v1.trainer_mode=separate_async"),
    "before v1": ("trainer/config", "ppo_trainer", "trainer.use_v1=false"),
    "one step off-policy": ("experimental/one_step_off_policy/config", "one_step_off_ppo_trainer"),
    "fully asynchronous": ("experimental/fully_async_policy/config", "fully_async_ppo_trainer"),
    "fully asynchronous, Megatron": ("experimental/fully_async_policy/config", "fully_async_ppo_megatron_trainer"),
    "Megatron": ("trainer/config", "ppo_megatron_trainer"),
    "TorchTitan": ("trainer/config", "ppo_trainer", "model_engine=torchtitan"),
    "VeOmni": ("trainer/config", "ppo_trainer", "model_engine=veomni"),
    "LoRA": ("trainer/config", "ppo_trainer", "actor_rollout_ref.model.lora_rank=8"),
}


@pytest.mark.parametrize("way", TRAINERS)
def test_the_switch_composes_and_verl_builds_its_actor(way, monkeypatch):
    folder, name, *overrides = TRAINERS[way]
    monkeypatch.chdir(VERL.parent)  # veRL's own search paths are relative to its checkout
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(VERL / folder), version_base=None):
        config = hydra.compose(name, [*overrides, "+algorithm=tr_grpo", "actor_rollout_ref.rollout.n=8"])
    OmegaConf.update(config, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", 1)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert isinstance(actor.policy_loss, TRGRPOPolicyLossConfig)
    assert actor.policy_loss.loss_mode == "tr_grpo"
    assert config.algorithm.adv_estimator == "grpo"
