"""Compare free-form options with the names that their readers have: a chat template, and the configuration of a model."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, get_args, get_type_hints

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.checks.construct.attempt import built_quietly, reason_of, refused_options
from verl_trgrpo.checks.construct.names import parameters_in_source
from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import nearest
from verl_trgrpo.data.prompts import model_facts, template_options
from verl_trgrpo.data.renderer import Renderer
from verl_trgrpo.runs.keys import MODEL, REWARD_MODEL, ROLLOUT, selected
from verl_trgrpo.runs.readers import python_words

_TEMPLATE, _ENGINE = "data.apply_chat_template_kwargs", f"{ROLLOUT}.checkpoint_engine"
_OVERRIDES = f"{ROLLOUT}.engine_kwargs.vllm.hf_overrides"


def option_findings(config: DictConfig, models: dict[str, DictConfig], local: Collection[str]) -> list[Finding]:
    """Return the options of the prompts and of the models that nothing reads.

    Args:
        config: of the run.
        models: sections of its models, by dotted key.
        local: those of them whose files are on this machine.
    """
    asked: list[tuple[str, str, Callable[[DictConfig], Collection[str] | None], str]] = [
        (f"{key}.override_config", key, _config_names, "the model's configuration and its code") for key in models
    ]
    asked.append((_TEMPLATE, MODEL, _template_names, "the tokenizer's chat template"))
    asked.append(("data.mm_processor_kwargs", MODEL, _processor_names, "the model's processor"))
    backend = str(selected(config, f"{_ENGINE}.backend"))
    asked.append((f"{_ENGINE}.engine_kwargs", "", lambda _: {backend}, f"{_ENGINE}.backend={backend}"))
    engine = partial(parameters_in_source, "verl.checkpoint_engine", "CheckpointEngineRegistry")
    asked.append((f"{_ENGINE}.engine_kwargs.{backend}", "", lambda _: engine(backend), f"checkpoint engine {backend}"))
    for rollout in (ROLLOUT, f"{REWARD_MODEL}.rollout"):
        server = str(selected(config, f"{rollout}.name"))
        asked.append((f"{rollout}.engine_kwargs", "", partial(_servers, config, rollout), f"{rollout}.name={server}"))
    if selected(config, f"{ROLLOUT}.name") == "vllm":
        asked.append((_OVERRIDES, MODEL, _vllm_names, "vLLM nor the model's configuration"))
    findings = []
    for section, key, names, owner in asked:
        options = selected(config, section)
        written = {*map(str, options)} if isinstance(options, DictConfig) else set()
        given = sorted(written - _of_verl(section)) if written else []
        if not given:
            continue
        if key and key not in local:
            message = f"{section}: its names were not checked, the files of the model are not on this machine"
            findings.append(Finding.not_checked(section, message))
            continue
        try:
            known = built_quietly(lambda names=names, key=key: names(models.get(key)))  # type: ignore[misc]
        except MemoryError:
            raise
        except Exception as error:  # transformers raises many unrelated types
            message = f"{section}: its names were not checked ({reason_of(error)})"
            findings.append(Finding.not_checked(section, message))
            continue
        findings += _unread(section, given, known, owner)
    return findings


def template_findings(config: DictConfig) -> list[Finding]:
    """Return the options with which the chat template of a model that is on this machine renders no question."""
    facts, options = model_facts(config), template_options(config)
    own = {name: options.pop(name) for name in ("chat_template",) if name in options}

    def build(some: Collection[str]) -> object:
        given = {name: options[name] for name in some}
        return Renderer(facts | {"template": own | given}).tokens([{"role": "user", "content": "?"}], None)

    return refused_options(_TEMPLATE, options, build, "the chat template", ", or remove this option")


def negative_findings(config: DictConfig, models: dict[str, DictConfig], local: Collection[str]) -> list[Finding]:
    """Return the options of models that are integers by their configuration, and below -1."""
    findings = []
    for section, key in {**{f"{key}.override_config": key for key in models}, _OVERRIDES: MODEL}.items():
        options = selected(config, section)
        given = options.items() if isinstance(options, DictConfig) else ()
        low = {str(name): each for name, each in given if type(each) is int and each < -1}
        kind: Any = type(_configuration(models[key])) if low and key in local else None
        kinds = {field.name: field.type for field in fields(kind)} if is_dataclass(kind) else {}
        for name, value in low.items():
            if int in (kinds.get(name), *get_args(kinds.get(name))):
                message = f"{section}.{name}={value}: is a number below -1; correct {section}.{name}"
                findings.append(Finding.error(f"{section}.{name}", message))
    return findings


def _servers(config: DictConfig, rollout: str, _model: Any) -> set[str]:
    """Return the server of a rollout, and those that have no options in its section."""
    options = selected(config, f"{rollout}.engine_kwargs")
    return {str(selected(config, f"{rollout}.name")), *(str(name) for name, given in options.items() if not given)}


def _of_verl(section: str) -> frozenset[str]:
    """Return the names in a section of a model that veRL itself reads."""
    from verl.workers.config import HFModelConfig

    return python_words(inspect.getsource(HFModelConfig)) if section.endswith(".override_config") else frozenset()


def _unread(section: str, given: list[str], known: Any, owner: str) -> list[Finding]:
    """Return a finding for each name that is not known; `known` is None where any name may be read."""
    findings = []
    for name in given:
        if known is None or name in known:
            continue
        meant = nearest(name, [each for each in known if not each.startswith("_")], cutoff=0.8)
        fix = f"did you mean {section}.{meant}?" if meant else f"remove {section}.{name}"
        reason = f"nothing reads this option, neither veRL nor {owner}"
        findings.append(Finding.warning(f"{section}.{name}", f"{section}.{name}: {reason}; {fix}"))
    return findings


def _template_names(section: DictConfig) -> Collection[str] | None:
    """Return the variables of the chat template and the parameters of ``apply_chat_template``."""
    from jinja2.meta import find_undeclared_variables
    from transformers.utils.chat_template_utils import _compile_jinja_template
    from verl.utils.config import omega_conf_to_dataclass

    model: Any = omega_conf_to_dataclass(section)
    if model.processor is not None:  # it takes the options of pictures and sounds, too
        return None
    template = model.tokenizer.get_chat_template()
    tree = _compile_jinja_template(template).environment.parse(template)
    return {*find_undeclared_variables(tree), *inspect.signature(model.tokenizer.apply_chat_template).parameters}


def _processor_names(section: DictConfig) -> Collection[str]:
    """Return the options of a model's processor; none of a model without one."""
    from verl.utils.config import omega_conf_to_dataclass

    model: Any = omega_conf_to_dataclass(section)
    return () if model.processor is None else processor_options(model.processor)


def processor_options(processor: Any) -> frozenset[str]:
    """Return what a processor takes for itself and for its parts."""
    kinds = get_type_hints(processor.valid_processor_kwargs)
    parts = [getattr(part, "valid_kwargs", None) for part in vars(processor).values()]
    options = [name for part in (*kinds.values(), *filter(None, parts)) for name in get_type_hints(part)]
    return frozenset({*kinds, *options, *inspect.signature(processor.__call__).parameters})


def _configuration(section: DictConfig) -> Any:
    """Return the configuration of a model without what is asked about, which would be set there."""
    from verl.utils.config import omega_conf_to_dataclass

    section = section.copy()
    attention = {name: value for name, value in section.override_config.items() if name == "attn_implementation"}
    OmegaConf.update(section, "override_config", attention, merge=False)
    model: Any = omega_conf_to_dataclass(section)
    return model.hf_config


def _config_names(section: DictConfig) -> Collection[str] | None:
    """Return the attributes of the model's configuration and the words of its code; None where that is not known."""
    config = _configuration(section)
    code = type(config).__module__
    if "configuration_" not in code:  # the model's own code may read any name
        return None
    try:
        reader = importlib.import_module(code.replace("configuration_", "modeling_"))
        return {*dir(config), *config.to_dict(), *python_words(inspect.getsource(reader))}
    except (ImportError, OSError):
        return None


def _vllm_names(section: DictConfig) -> Collection[str] | None:
    """Return the attributes of the model's configuration, and the words of vLLM's code that reads it."""
    from vllm import ModelRegistry
    from vllm.config import model
    from vllm.transformers_utils import config, model_arch_config_convertor

    if (known := _config_names(section)) is None:
        return None
    readers = [model, config, model_arch_config_convertor]
    for name in _configuration(section).architectures or ():
        if module := getattr(ModelRegistry.models.get(name), "module_name", ""):
            readers.append(importlib.import_module(module))
    return {*known, *(word for reader in readers for word in python_words(inspect.getsource(reader)))}
