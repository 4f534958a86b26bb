"""The switch with veRL's other trainers and engines: composed, and built as veRL's workers build it."""

import dataclasses
import math
from importlib.util import find_spec
from pathlib import Path

import hydra
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf
from verl.trainer.config import RolloutCorrectionConfig
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask
from verl.utils.config import omega_conf_to_dataclass

from tests.conftest import composed
from verl_trgrpo.config import OWN_CONFIGS
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


def compose_way(way, monkeypatch, *more):
    folder, name, *overrides = TRAINERS[way]
    monkeypatch.chdir(VERL.parent)  # veRL's own search paths are relative to its checkout
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(VERL / folder), version_base=None):
        return hydra.compose(name, [*overrides, *more])


@pytest.mark.parametrize("way", TRAINERS)
def test_the_switch_composes_and_verl_builds_its_actor(way, monkeypatch):
    config = compose_way(way, monkeypatch, "+algorithm=tr_grpo", "actor_rollout_ref.rollout.n=8")
    OmegaConf.update(config, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", 1)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert isinstance(actor.policy_loss, TRGRPOPolicyLossConfig)
    assert actor.policy_loss.loss_mode == "tr_grpo"
    assert config.algorithm.adv_estimator == "grpo"


# Words of mismatch=, and veRL's own presets that they choose.
PRESETS = {
    "tis": RolloutCorrectionConfig.decoupled_token_is(),
    "icepop": RolloutCorrectionConfig.decoupled_token_icepop(),
    "mis": RolloutCorrectionConfig.decoupled_seq_is_rs(),
    "geo_mask": RolloutCorrectionConfig.decoupled_geo_rs(),
}


def test_every_word_of_mismatch_is_a_preset_of_verl_or_this_project_s_mask():
    """tests/verl_plugin/test_off_policy_mask.py has the mask."""
    assert {file.stem for file in (OWN_CONFIGS / "mismatch").iterdir()} == {*PRESETS, "opsm"}


@pytest.mark.parametrize("way", [None, *TRAINERS])
@pytest.mark.parametrize("word", PRESETS)
def test_a_word_of_mismatch_sets_what_verl_calls_so_in_every_trainer(word, way, monkeypatch):
    """The asynchronous trainers take the rollout's probabilities for the old ones by default, where k would be 1."""
    if way is None:
        config = composed(["algorithm=tr_grpo", f"mismatch={word}"], "trgrpo_trainer").config
    else:
        config = compose_way(way, monkeypatch, "+algorithm=tr_grpo", f"mismatch={word}")
    correction = OmegaConf.to_container(config.algorithm.rollout_correction)
    expected = dataclasses.asdict(PRESETS[word])
    expected.pop("_target_")
    unread = {"rollout_is_threshold"} if expected["rollout_is"] is None else set()
    unread |= {"rollout_rs_threshold"} if expected["rollout_rs"] is None else set()
    for key in expected.keys() - unread:
        assert str(correction[key]) == str(expected[key]), key
    assert config.actor_rollout_ref.rollout.calculate_log_probs is True


def weights_and_kept(word, k):
    """Return what the papers say of a response with the ratios `k` of p_old to p_rollout: weights, and if it is kept."""
    whole = math.prod(k)
    return {
        "tis": ([min(x, 2) for x in k], True),
        "icepop": ([x if 0.5 <= x <= 5 else 0 for x in k], True),  # arXiv 2510.18855
        "mis": ([min(whole, 2)] * len(k), 0.5 <= whole <= 2),
        "geo_mask": (None, 0.999 <= whole ** (1 / len(k)) <= 1.001),
    }[word]


@pytest.mark.parametrize("word", PRESETS)
def test_verl_computes_what_the_papers_say_from_the_composed_settings(word):
    config = composed(["algorithm=grpo", f"mismatch={word}"], "trgrpo_trainer").config.algorithm.rollout_correction
    generator, lengths = torch.Generator().manual_seed(0), [1, 3, 7, 9] * 10
    log_k = (
        torch.randn(40, 9, generator=generator, dtype=torch.float64)
        * torch.tensor([1e-3, 0.2, 0.5, 2.0] * 10).sort()[0][:, None]
    )
    valid = torch.arange(9) < torch.tensor(lengths)[:, None]
    found, mask, _ = compute_rollout_correction_and_rejection_mask(
        old_log_prob=log_k, rollout_log_prob=torch.zeros_like(log_k), response_mask=valid.double(),
        **{key: config[key] for key in ("rollout_is", "rollout_is_threshold", "rollout_rs", "rollout_rs_threshold")},
    )  # fmt: skip
    kept = []
    for row, n in enumerate(lengths):
        weights, keep = weights_and_kept(word, log_k[row, :n].exp().tolist())
        kept.append(keep)
        assert mask[row, :n].tolist() == [float(keep)] * n
        if weights is not None:
            assert found.batch["rollout_is_weights"][row, :n].tolist() == pytest.approx(weights)
    assert (found is None) is (word == "geo_mask")
    assert len({*kept}) == (2 if config.rollout_rs else 1)
