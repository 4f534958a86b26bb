"""Answer the questions of `checks.constructed`: which names are unknown, and what cannot be constructed."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.checks.construct import engine, rollout, sections
from verl_trgrpo.checks.construct.names import unknown_names
from verl_trgrpo.checks.construct.options import negative_findings, option_findings, template_findings
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.runs.keys import ACTOR, MODEL, REF, REWARD_MODEL, ROLLOUT, selected

_ANY_MODEL = Path(__file__).parent / "any_model"
# What a section of a model says of its files; without them another model is used.
_OF_FILES = ("hf_config_path", "tokenizer_path", "lora_adapter_path", "custom_chat_template")


def warm_up() -> None:
    """Import what is constructed, as far as it is installed."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from verl_trgrpo.verl_plugin.cpu.vllm import provide_vllm_distribution

    provide_vllm_distribution()
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import verl  # registries, and modules of the user's own
        import verl.workers.config
        import verl.workers.engine.fsdp.transformer_impl

        with contextlib.suppress(ImportError):
            import verl.workers.rollout.vllm_rollout.vllm_async_server  # noqa: F401


def construct(question: str, settings: dict[str, Any], *arguments: Any) -> list[list[str]]:
    """Return the findings of a question, each as level, place and message.

    Args:
        question: a name in `_QUESTIONS`.
        settings: the resolved configuration.
        arguments: of the question.
    """
    config = OmegaConf.create(settings)
    return [[each.level.value, each.where, each.message] for each in _QUESTIONS[question](config, *arguments)]


def constructed(config: DictConfig, loss: dict[str, Any], local: list[str], validates: bool = True) -> list[Finding]:
    """Construct the parts of a run.

    Args:
        config: of the run.
        loss: the section of the policy loss, without settings of the run.
        local: sections of models whose files are on this machine.
        validates: the trainer runs veRL's ``validate_config``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for key in (MODEL, "critic.model"):
            OmegaConf.update(config, f"{key}.use_shm", False)  # it would copy the model into memory
        found = sections.dataclass_findings(config.copy(), OmegaConf.create(loss), frozenset(local), validates)
        return found if any(each.level is Level.ERROR for each in found) else found + _worker_findings(config, local)


def _worker_findings(config: DictConfig, local: list[str]) -> list[Finding]:
    """Construct what actor, reference, critic and rollout build of sections that are sound."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy

    findings, model = list[Finding](), _with_files(config, MODEL, local)
    parts = {ACTOR: (config.actor_rollout_ref.actor, model, MODEL)}
    if need_reference_policy(config):
        parts[REF] = (sections.reference(config), model, MODEL)
    if need_critic(config):
        parts["critic"] = (config.critic, _with_files(config, "critic.model", local), "critic.model")
    for section, (settings, its_model, key) in parts.items():
        name = "fsdp" if section == "critic" else "fsdp_config"
        if selected(settings, name) and str(selected(settings, "strategy")).startswith("fsdp"):
            findings += engine.engine_findings(config, section, settings, its_model, key in local, name)
    models = {key: its_model for _, its_model, key in parts.values()}
    findings += option_findings(config, models, local) + negative_findings(config, models, local)
    findings += template_findings(config) if MODEL in local else []
    gpus = selected(config, "rollout.n_gpus_per_node") or config.trainer.n_gpus_per_node  # the rollout's own, if it has
    if selected(config, f"{ROLLOUT}.name") == "vllm":
        findings += rollout.server_findings(ROLLOUT, config.actor_rollout_ref.rollout, model, gpus, MODEL in local)
    judge = f"{REWARD_MODEL}.rollout"
    if selected(config, f"{REWARD_MODEL}.enable") and selected(config, f"{judge}.name") == "vllm":
        path = selected(config, f"{REWARD_MODEL}.model_path")
        its_model = OmegaConf.create({"_target_": model._target_, "path": path})
        is_here = REWARD_MODEL in local
        its_model = its_model if is_here else _any_model(its_model)
        findings += rollout.server_findings(judge, selected(config, judge), its_model, gpus, is_here)
    return findings


def _with_files(config: DictConfig, key: str, local: list[str]) -> DictConfig:
    section = selected(config, key).copy()
    return section if key in local else _any_model(section)


def _any_model(section: DictConfig) -> DictConfig:
    """Replace a model whose files are not here by one of this package that is larger than any setting of a run."""
    OmegaConf.set_struct(section, False)
    section.update(dict.fromkeys(_OF_FILES), path=str(_ANY_MODEL))
    section.tokenizer_path = str(CHECKPOINT)
    return section


_QUESTIONS: dict[str, Callable[..., list[Finding]]] = {"names": unknown_names, "constructed": constructed}
