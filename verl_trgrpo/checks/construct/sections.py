"""Build veRL's dataclasses from a configuration, and run veRL's ``validate_config``."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Collection
from dataclasses import fields
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict

from verl_trgrpo.checks.construct.attempt import reason_of, refused_options, with_options
from verl_trgrpo.common.findings import Finding, messages_of
from verl_trgrpo.core import TokenWeighting
from verl_trgrpo.runs.compose import defaults_of
from verl_trgrpo.runs.keys import ACTOR, LOSS, MODEL, SHAPING, selected
from verl_trgrpo.runs.readers import hints_of, located
from verl_trgrpo.verl_plugin.cpu.vllm import provide_vllm_distribution

# The innermost first. veRL reads reward and profiler without building their dataclasses.
_NODES = (
    "algorithm", "actor_rollout_ref.rollout", "distillation", "skip",
    SHAPING, LOSS, ACTOR,
)  # fmt: skip
# What veRL's worker renames in the options of the reference model before it builds them.
_REFERENCE_NAMES = {
    "log_prob_micro_batch_size": "ppo_micro_batch_size",
    "log_prob_micro_batch_size_per_gpu": "ppo_micro_batch_size_per_gpu",
    "log_prob_use_dynamic_bsz": "use_dynamic_bsz",
    "log_prob_max_token_len_per_gpu": "ppo_max_token_len_per_gpu",
}
_REFERENCE = "actor_rollout_ref.ref"
# Sizes for all GPUs together, for which a rule names the keys of today.
_OLD_SIZES = (
    (ACTOR, "ppo_micro_batch_size"),
    ("actor_rollout_ref.rollout", "log_prob_micro_batch_size"),
    (_REFERENCE, "log_prob_micro_batch_size"),
)
_UNEXPECTED = re.compile(r"\b(?P<class>\w+)\.__init__\(\) got an unexpected keyword argument '(?P<name>\w+)'")
_NO_SIZE = re.compile(r"(?<= or ')[\w.]+_per_gpu(?=')")
_CONFIG_KEY = re.compile(r"\n *full_key: (?P<key>\S+)")


def dataclass_findings(config: DictConfig, loss: DictConfig, local: frozenset[str], validates: bool) -> list[Finding]:
    """Build every dataclass that veRL's driver and workers build, then run ``validate_config`` if all of them can be built.

    A missing micro-batch size, which fails a dataclass, is 1 for ``validate_config``, so that one round names all that lack one.

    While the sections around them are built, sections of the policy loss that cannot be built are replaced by the defaults.

    Args:
        config: of the run, which is changed.
        loss: the section of the policy loss, without settings of the run.
        local: sections of models whose files are here.
        validates: the trainer runs ``validate_config``.
    """
    from verl.trainer.ppo.utils import need_critic, need_reference_policy

    nodes = [node for node in _NODES if "_target_" in (selected(config, node) or {})]
    if MODEL in local:  # it reads the model's files
        nodes.append(MODEL)
    has_critic = need_critic(config) and "critic.model" in local
    if has_critic:
        nodes.append("critic")
    findings: list[Finding] = []
    failed: list[str] = []
    for key in nodes:
        node = selected(config, key)
        found = _override_findings(key, node) or _build_findings(
            key, _fields_alone(node) if key == "algorithm" else node
        )
        # Where the run's groups are at fault its defaults fail, too, and so does the section around them.
        inner = [each for each in findings if each.where.startswith(f"{key}.")]
        reasons = [each.message.removeprefix(f"{each.where}: ") for each in inner]
        findings += [each for each in found if not any(reason in each.message for reason in reasons)]
        failed += [key] if found else []
        if found and key.startswith(f"{ACTOR}."):
            # The default of `shaping=custom` names no shaping either.
            sound = selected(defaults_of({}), SHAPING) if key == SHAPING else loss
            OmegaConf.update(config, key, sound, merge=False)
    if need_reference_policy(config):
        refused = _build_findings(_REFERENCE, reference(config))
        findings += [Finding.error(_REFERENCE, _of_reference(found.message)) for found in refused]
        failed += [_REFERENCE] if refused else []
    if not validates or not _built_with_sizes(config, failed):
        return findings
    return findings + _validate_config_findings(config, need_reference_policy(config), has_critic)


def _built_with_sizes(config: DictConfig, failed: list[str]) -> bool:
    """Set the micro-batch sizes that failed sections lack, and return whether all of them can then be built."""
    for section, name in _OLD_SIZES:
        node = selected(config, section)
        if section in failed and node.get(name) is None and node.get(f"{name}_per_gpu") is None:
            node[f"{name}_per_gpu"] = 1
    nodes = {key: reference(config) if key == _REFERENCE else selected(config, key) for key in failed}
    return not any(_build_findings(key, node) for key, node in nodes.items())


def _fields_alone(node: DictConfig) -> DictConfig:
    """Return the options of ``algorithm`` that its dataclass has.

    veRL hands the section to the estimator as it is and never builds the dataclass, so options of an estimator of the user's
    own are right. Whether anything reads an option is the question of `runs.readers`.
    """
    node, names = node.copy(), {"_target_", *hints_of(located(str(node._target_)))}
    with open_dict(node):
        for name in [name for name in node if name not in names]:
            del node[name]
    return node


def reference(config: DictConfig) -> DictConfig:
    """Return the section of the reference model with the names under which veRL's worker builds it."""
    ref = config.actor_rollout_ref.ref.copy()
    with open_dict(ref):
        for old, new in _REFERENCE_NAMES.items():
            ref[new] = ref.pop(old, None)
        ref.use_dynamic_bsz = bool(ref.use_dynamic_bsz)
    return ref


def _of_reference(message: str) -> str:
    """Return veRL's message about the options of an actor with the names that the reference model has for them."""
    for own, built in _REFERENCE_NAMES.items():
        message = re.sub(rf"\b(?:actor\.)?{built}\b", f"ref.{own}", message)
    return message.replace("[actor] ", "")


def _build_findings(key: str, node: Any) -> list[Finding]:
    from verl.utils.config import omega_conf_to_dataclass

    try:
        omega_conf_to_dataclass(node)
    except Exception as error:  # Hydra wraps whatever a constructor raises
        return [Finding.error(key, f"{key}: {reason}".replace(f" (at {key})", "")) for reason in _reasons(error)]
    return []


def _override_findings(key: str, node: DictConfig) -> list[Finding]:
    """Return the options that cannot be set in the configuration of a model, which its section reads."""
    from verl.utils.config import omega_conf_to_dataclass

    name = {MODEL: "override_config", "critic": "model.override_config"}.get(key)
    given = {str(each): value for each, value in (selected(node, name) or {}).items()} if name else {}

    def build(some: Collection[str]) -> object:
        return omega_conf_to_dataclass(with_options(node, str(name), some))

    return refused_options(f"{key}.{name}", given, build, "veRL's configuration of the model")


def _validate_config_findings(config: DictConfig, has_reference: bool, has_critic: bool) -> list[Finding]:
    """Run veRL's ``validate_config``, which stops at its first error.

    Batch sizes come first there and have checks of their own here, so that sizes which always fit stand in for them. Only of
    Megatron's batches veRL knows more.
    """
    from verl.utils.config import validate_config

    if config.actor_rollout_ref.actor.strategy != "megatron":
        config.trainer.n_gpus_per_node = config.trainer.nnodes = 1
        config.data.train_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size = 1
        if "critic" in config:
            config.critic.ppo_mini_batch_size = 1
        for section, name in _OLD_SIZES:
            node = selected(config, section)
            if node.get(name) is not None and node.get(f"{name}_per_gpu") is None:
                node[name], node[f"{name}_per_gpu"] = None, 1
    if config.actor_rollout_ref.rollout.name == "vllm":
        provide_vllm_distribution()  # it asks vLLM for the limit of LoRA's rank
    where = "verl.utils.config.validate_config"
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            validate_config(config, has_reference, has_critic)
    except Exception as error:  # assertions, value errors and others
        missing = isinstance(error, ModuleNotFoundError) and error.name == "vllm"
        if missing or "vllm version None not supported" in str(error):
            message = "actor_rollout_ref.model.lora_rank: not compared with vLLM's limit, vLLM is not installed on this machine"
            return [Finding.not_checked(where, message)]
        return [Finding.error(where, f"veRL refuses the configuration: {reason}") for reason in _reasons(error)]
    return []


def _reasons(error: BaseException) -> list[str]:
    """Return the messages of what was raised below Hydra's own error, each with the configuration key that Hydra names."""
    place = _CONFIG_KEY.search(str(error))
    while isinstance(error, HydraException) and error.__cause__ is not None:
        error = error.__cause__
    messages = []
    for message in messages_of(error) if str(error) else [reason_of(error)]:
        if found := _UNEXPECTED.search(message):
            fix = "remove the key, or correct the settings name"
            if found["name"] in {option.name for option in fields(TokenWeighting)}:
                fix = "token weights have this option; add a shaping, such as shaping=sigmoid, or remove the key"
            message = f"{found['class']} has no option {found['name']!r}; {fix}"
        if found := _NO_SIZE.search(message):
            message += f"; set {found[0]}=1, or to more"
        messages.append(f"{message} (at {place['key']})" if place else message)
    return messages
