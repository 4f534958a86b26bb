"""Check each setting by itself: sections, deleted keys, keys without a reader, types and ranges."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

from verl_trgrpo.checks.tables import full
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import as_plain_yaml, as_yaml
from verl_trgrpo.runs.compose import group_names, verl_defaults
from verl_trgrpo.runs.keys import (
    MANAGER_OPTIONS,
    OLD_SECTIONS,
    SHAPING,
    flat,
    hint_of,
    moved_key,
    selected,
)
from verl_trgrpo.runs.overrides import can_be_added
from verl_trgrpo.runs.readers import (
    Unread,
    dataclass_in,
    hints_of,
    is_section,
    key_table,
    located,
    node_of,
    unread_keys,
)

_Text = Annotated[str, MinLen(1)]
_Files = _Text | list[_Text] | None  # that some are named is checked with the files
_Count = Annotated[int, Ge(1)]
_Natural = Annotated[int, Ge(0)]
_Interval = Annotated[int, Ge(-1)]  # -1: never, or all; of veRL's integers none means anything below it
_TopK = Annotated[int, Ge(-1)]  # -1 and 0: off
_Positive = Annotated[float, Gt(0), Lt(math.inf)]
_NotNegative = Annotated[float, Ge(0), Lt(math.inf)]
_Share = Annotated[float, Ge(0), Le(1)]
_PositiveShare = Annotated[float, Gt(0), Le(1)]
# Types that are narrower than veRL's annotations, or of keys that have none; sections have the short names of the tables.
_KEYS: tuple[tuple[Any, str], ...] = (
    (_Text, "model.path trainer.default_local_dir data.prompt_key"),
    (_Files, "data.train_files data.val_files"),
    (str | list[str] | None, "trainer.logger"),
    (str | list | None, "model.exclude_modules"),  # as PEFT takes it
    (str | None, "reward_function.path reward_function.name"),
    (int | None, "data.seed"),
    (_Count, "data.train_batch_size data.max_prompt_length data.max_response_length trainer.nnodes"),
    (_Count, "trainer.total_epochs actor.ppo_mini_batch_size actor.ppo_epochs actor.ppo_max_token_len_per_gpu"),
    (_Count, "rollout.n validation.n"),
    (_Count, "actor.ulysses_sequence_parallel_size engine.ulysses_sequence_parallel_size trainer.n_gpus_per_node"),
    (_Count, "algorithm.kl_ctrl.horizon"),
    (_Count, "rollout.tensor_model_parallel_size rollout.data_parallel_size rollout.max_num_seqs reward.num_workers"),
    (_Count, "rollout.log_prob_max_token_len_per_gpu ref.log_prob_max_token_len_per_gpu rollout.agent.num_workers"),
    (_Count | None, "actor.ppo_micro_batch_size_per_gpu rollout.log_prob_micro_batch_size_per_gpu ray_init.num_cpus"),
    (_Count, "critic.ppo_mini_batch_size critic.ppo_epochs data.filter_overlong_prompts_workers"),
    (_Count, "rollout.checkpoint_engine.update_weights_bucket_megabytes"),
    (_Count, "transfer_queue.backend.SimpleStorage.num_data_storage_units"),
    (_Count | None, "transfer_queue.backend.SimpleStorage.total_storage_size"),
    (_Count | None, "trainer.total_training_steps data.val_batch_size data.gen_batch_size"),
    # 0 and -1: all, as without a number
    (_Interval | None, "trainer.max_actor_ckpt_to_keep trainer.max_critic_ckpt_to_keep"),
    (_Natural, "trainer.critic_warmup algorithm.filter_groups.max_num_gen_batches"),
    (_Natural, "model.lora_rank data.dataloader_num_workers"),
    (_Natural | None, "ray_init.num_gpus"),
    (_Interval, "trainer.save_freq trainer.test_freq"),
    (_TopK, "rollout.top_k validation.top_k"),
    (_NotNegative, "sampler.sampler_kwargs.poll_interval"),  # seconds of a sleep
    (_NotNegative, "optim.lr optim.weight_decay actor.kl_loss_coef validation.temperature algorithm.kl_ctrl.kl_coef"),
    # Of a negative range veRL's clamp returns the upper bound, whatever the ratio.
    (_NotNegative, "actor.clip_ratio actor.clip_ratio_low"),
    (_NotNegative | None, "actor.clip_ratio_high"),
    # At a temperature of 0 all responses to a prompt are the same, and there is nothing to compare.
    (_Positive, "optim.clip_grad actor.grad_clip rollout.temperature algorithm.kl_ctrl.target_kl"),
    (_Share, "optim.lr_warmup_steps_ratio algorithm.gamma algorithm.lam"),
    (_PositiveShare, "rollout.top_p validation.top_p rollout.gpu_memory_utilization"),
)
_TYPES = {full(key): kind for kind, keys in _KEYS for key in keys.split()}


def section_findings(view: RunView) -> list[Finding]:
    """Check that no key of veRL's was deleted and that no section was replaced by another value."""
    deleted = [word[1:].partition("=")[0] for word in view.run.arguments if word.startswith("~")]
    findings = [
        Finding.error(key, f"~{key}: veRL reads this key; set {key} to another value")
        for key in deleted
        if selected(view.defaults, key) is not None
    ]
    for key, value, default in _replaced_sections(view.config, view.defaults, ""):
        fix = (
            "choose a shaping with shaping=NAME"
            if key == SHAPING
            else f"set its keys, such as {key}.{next(iter(default))}"
        )
        findings.append(Finding.error(key, f"{key}={as_plain_yaml(value)}: must be a section; {fix}"))
    return findings


def _replaced_sections(node: DictConfig, defaults: DictConfig, prefix: str) -> Iterator[tuple[str, Any, DictConfig]]:
    """Yield key, value and default of what is a section by default and something else in `node`."""
    for name in node:
        child, default = node_of(node, name), node_of(defaults, name)
        if not is_section(default) or child._is_interpolation():
            continue
        if is_section(child) or (isinstance(child, DictConfig) and not child._is_none() and not child._is_missing()):
            yield from _replaced_sections(child, default, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", child._value(), default


def key_findings(view: RunView) -> list[Finding]:
    """Check for keys without a reader (see `runs.readers`), and for keys of older releases that have moved.

    A key without a reader is an error where the run would fail, or where nothing says that it was added on purpose: a plus on
    the command line, or a file that ``--cfg job`` printed, into which Hydra let nothing else.
    """
    groups = group_names(view.run.choices)
    places = [key for key in flat(view.defaults) if key.partition(".")[0] not in OLD_SECTIONS]
    places += [group for group in groups if "@" not in group]
    own = flat(view.run.trainer.settings) if view.run.trainer else {}
    moved = [each for each in _moved_findings(view.config, view.defaults) if each.where not in own]
    findings = list[Finding]()
    for each in unread_keys(view.config, view.defaults):
        added = view.run.is_job or any(f"{key}.".startswith(f"{each.key}.") for key in view.run.added)
        on_purpose = added and can_be_added(view.defaults, each.key, groups)
        old = [found for found in moved if not each.fails and found.where.startswith(f"{each.key}.")]
        findings += [replace(found, level=found.level if on_purpose else Level.ERROR) for found in old]
        if not old:
            findings.append(_unread_finding(each, places, on_purpose))
    below = tuple(f"{each.where}." for each in findings)
    return findings + [each for each in moved if not f"{each.where}.".startswith(below)]


def _unread_finding(unread: Unread, places: list[str], on_purpose: bool) -> Finding:
    key, release = unread.key, key_table()["verl"]
    section, dot, _ = key.rpartition(".")
    known = [*(f"{section}{dot}{name}" for name in unread.known), *places]
    fix = hint_of(key, known) or f"remove {key}"
    if unread.fails:
        return Finding.error(key, f"{key}: unknown key, {unread.fails} of veRL refuses it; {fix}")
    if (installed := importlib.metadata.version("verl")) != release:
        reason = (
            f"not known whether anything reads it: veRL {installed} is installed, the keys of {release} are known here"
        )
        return Finding.not_checked(key, f"{key}: {reason}")
    level = Level.WARNING if on_purpose else Level.ERROR
    return Finding(
        level, key, f"{key}: unknown key, nothing in veRL {release} or in this run's own code reads it; {fix}"
    )


def _moved_findings(config: DictConfig, defaults: DictConfig) -> list[Finding]:
    findings = []
    for key, value in flat(config).items():
        if value is not None and (moved := moved_key(key)) and value != selected(defaults, key):
            plus = " (on the command line with a plus)" if moved.place.startswith(MANAGER_OPTIONS) else ""
            decides = (
                key.partition(".")[0] in OLD_SECTIONS
            )  # the run would optimise another reward than the one asked for
            fix = f"set {moved.place}{plus}" if moved.place else f"remove {key}, {moved.why}"
            reason = f"veRL's trainer does not read this key{', and takes another reward' if decides else ''}; {fix}"
            level = Level.ERROR if decides else Level.WARNING
            findings.append(Finding(level, key, f"{key}={as_plain_yaml(value)}: {reason}"))
    return findings


def type_findings(view: RunView) -> list[Finding]:
    """Check the type and the range of every value that differs from its default.

    A default is always right, whatever veRL's annotation says. Null is right for numbers and strings that are not in the
    table above: veRL's annotations do not say where its code takes null.
    """
    config, defaults, findings = view.config, view.defaults, []
    for key, section, name, hint in _settings(config, defaults, None, ""):
        default, node = selected(defaults, key), node_of(section, name)
        if node._is_missing():
            if default is not None:  # others belong to parts of veRL that a run may not use
                reason = f"has no value; give one, such as {as_plain_yaml(default)}"
                findings.append(Finding.error(key, f"{key}=???: {reason}"))
            continue
        try:
            value = section[name]
            value = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        except OmegaConfBaseException as error:
            reason = str(error).splitlines()[0]
            findings.append(
                Finding.error(key, f"{key}={node._value()}: cannot be resolved ({reason}); correct the value")
            )
            continue
        # A rule says what the fully asynchronous trainer takes, which draws prompts one by one.
        one_by_one = key == "data.train_batch_size" and view.trainer_name == "fully_async"
        if not one_by_one and (found := _type_finding(key, hint, value, default)):
            findings.append(found)
    return findings


def written_keys(config: DictConfig, defaults: DictConfig) -> Iterator[str]:
    """Yield the keys whose values differ from their defaults as they are written, and those that have none by default."""
    for key, section, name, _ in _settings(config, defaults, None, ""):
        if not node_of(section, name)._is_missing():
            yield key


def _settings(node: DictConfig, defaults: Any, owner: Any, prefix: str) -> Iterator[tuple[str, DictConfig, Any, Any]]:
    """Yield the values below `node` that differ from their defaults, `owner` being its dataclass where it names none.

    As dotted key, section, name in the section, and annotation of veRL's dataclass, None where it has none.
    """
    target = node_of(node, "_target_")
    hints = hints_of(owner if target is None else located(str(target._value())))
    for name in node:
        key, child, hint = f"{prefix}{name}", node_of(node, name), hints.get(str(name))
        default = node_of(defaults, name) if isinstance(defaults, DictConfig) else None
        below = dataclass_in(hint)
        if is_section(child) and (default is None or default._is_none() or isinstance(default, DictConfig)):
            yield from _settings(child, default, below, f"{key}.")
        elif key != SHAPING and not is_section(default) and (default is None or _written(child) != _written(default)):
            yield key, node, name, hint


def _written(node: Any) -> Any:
    """Return the value of a node as it is written, not resolved."""
    if isinstance(node, (DictConfig, ListConfig)) and not node._is_none() and not node._is_missing():
        return node._value() if node._is_interpolation() else OmegaConf.to_container(node, resolve=False)
    return node._value()


def _type_finding(key: str, annotation: Any, value: Any, default: Any) -> Finding | None:
    hint = _TYPES.get(key)
    if hint is None:
        if value is None and not isinstance(default, (bool, DictConfig, ListConfig)):
            return None
        hint = annotation if annotation is not None else _type_of(default)
        hint = _with_range(key, hint, value, default)
    if value == default or dataclass_in(hint):
        return None  # sections are checked key by key
    if get_origin(hint) is tuple and isinstance(value, list):
        value = tuple(value)
    if not (reason := _refusal(hint, value)):
        return None
    shown = list(value) if isinstance(value, tuple) else value
    usual = f"the default is {as_plain_yaml(default)}"
    if key in (of_verl := flat(verl_defaults())):  # a default of this package would mislead in a job of stock veRL
        usual = f"veRL's default is {as_plain_yaml(of_verl[key])}"
    return Finding.error(key, f"{key}={as_yaml(shown)}: {reason}; {usual}")


def _refusal(hint: Any, value: Any) -> str:
    """Return why a value is not of a type, "" if it is; nan is a number nowhere, and compares false with every bound."""
    if isinstance(value, float) and math.isnan(value):
        return "should be a number"
    try:
        _adapter(hint).validate_python(value, strict=True)
    except ValidationError as error:
        reasons = dict.fromkeys(each["msg"].removeprefix("Input ") for each in error.errors())
        reason = " or ".join(reasons).replace(" or should be a valid ", " or ")
        return reason.replace("Field required", "should have more values")
    return ""


def _with_range(key: str, hint: Any, value: Any, default: Any) -> Any:
    """Return the type of a setting, with the least value that an integer of veRL's has; classes of others may take any."""
    if not isinstance(value, int) or value >= -1 or key not in flat(verl_defaults()):
        return hint
    if hint is float and type(default) is int:  # a key without annotation
        return _Interval
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return Union[tuple(_Interval if kind is int else kind for kind in kinds)]  # noqa: UP007  # of a tuple


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


def _type_of(default: Any) -> Any:
    """Return the type of a key without annotation, from its default."""
    if isinstance(default, bool):
        return bool
    if isinstance(default, (int, float)):
        return float
    if isinstance(default, str):
        return str | int | float | bool  # an experiment may be named 2024
    return dict if isinstance(default, DictConfig) else Any
