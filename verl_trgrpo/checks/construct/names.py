"""Ask who looks a name up whether it knows the name: veRL's registries, its functions, its source where it compares."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.checks.construct.attempt import attempt, refused_options
from verl_trgrpo.checks.view import OWN_MANAGER
from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import as_plain_yaml, did_you_mean
from verl_trgrpo.data.prompts import TOOLS
from verl_trgrpo.runs.compose import verl_defaults
from verl_trgrpo.runs.keys import AGENT, CORRECTION, LOSS, MANAGER, REWARD, selected

_SAMPLER = "trainer.v1.sampler.custom_sampler"
_CHECKPOINTS = "verl.utils.checkpoint.checkpoint_manager:BaseCheckpointManager"
_V1 = "verl.trainer.ppo.v1.trainer_base"


def unknown_names(config: DictConfig, written: Sequence[str]) -> list[Finding]:
    """Return the names among values that whoever looks them up does not know.

    Args:
        config: of the run.
        written: keys whose values are not the defaults.
    """
    findings = []
    for key in written:
        value = selected(config, key)
        value = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        findings += _unknown(config, key, value) or _refused(key, value, config)
    for section, call in _CALLED_WITH.items():
        names = [key.removeprefix(f"{section}.") for key in written if key.startswith(f"{section}.")]
        findings += _refused_together(config, section, names, call)
    return findings


def _unknown(config: DictConfig, key: str, value: Any) -> list[Finding]:
    asked = next((ask for pattern, ask in _NAMES.items() if fnmatch(key, pattern)), None)
    known = sorted(map(str, asked(config, key))) if asked else []
    unknown = [name for name in (value if isinstance(value, list) else [value]) if name not in known]
    if not known or not unknown:
        return []
    return [Finding.error(key, f"{key}={as_plain_yaml(value)}: unknown name; {did_you_mean(str(unknown[0]), known)}")]


def _refused(key: str, value: Any, config: DictConfig) -> list[Finding]:
    call = next((call for pattern, call in _CALLED.items() if fnmatch(key, pattern)), None)
    if call is None or value is None:
        return []
    return attempt(key, value, partial(call, value, config), "veRL", f"correct {key}")


def _refused_together(
    config: DictConfig, section: str, names: list[str], call: Callable[[DictConfig], None]
) -> list[Finding]:
    """Return the options of a section that whoever gets all of it refuses; the others have veRL's values meanwhile."""
    given = {name: selected(config, f"{section}.{name}") for name in names}

    def build(some: Collection[str]) -> None:
        options = selected(verl_defaults(), section).copy()
        for name in some:
            OmegaConf.update(options, name, given[name], force_add=True)
        call(options)

    return refused_options(section, given, build, "veRL")


# Who is asked for names: each takes the configuration and the key.


def _registry(place: str, attribute: str = "") -> Callable[[DictConfig, str], Iterable[Any]]:
    """Return what answers with the names in a registry, ``module:object``, or in an attribute of the object."""

    def names(_config: DictConfig, _key: str) -> Iterable[Any]:
        module, _, name = place.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
        except ImportError:  # of a veRL that has other modules
            return ()
        return [*getattr(found, attribute)] if attribute else [*found]

    return names


def _compared(place: str, attribute: str, *more: str) -> Callable[[DictConfig, str], Iterable[str]]:
    """Return what answers with the strings that the source of ``module:object`` compares an attribute or variable with."""

    def names(_config: DictConfig, _key: str) -> Iterable[str]:
        found = compared_names(place, attribute)
        return {*found, *more} if found else ()

    return names


@cache
def compared_names(place: str, attribute: str) -> frozenset[str]:
    """Return the strings with which a source compares what is called `attribute`; nothing where it cannot be read."""
    module, _, name = place.partition(":")
    try:
        owner: Any = importlib.import_module(module)
        for part in filter(None, name.split(".")):
            owner = getattr(owner, part)
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (ImportError, AttributeError, OSError, TypeError, SyntaxError):
        return frozenset()
    found: set[str] = set()
    for node in ast.walk(tree):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        if any(attribute in (getattr(each, "attr", ""), getattr(each, "id", "")) for each in sides):
            constants = (each for side in sides for each in ast.walk(side) if isinstance(each, ast.Constant))
            found.update(each.value for each in constants if isinstance(each.value, str))
    return frozenset(found)


@cache
def registered_in_source(package: str, registry: str) -> dict[str, list[tuple[str, ast.ClassDef]]]:
    """Return the names under which decorators in a package's source register classes, and folder and class of each.

    Modules that cannot be imported here count too.
    """
    found = importlib.util.find_spec(package)
    names = defaultdict[str, list[tuple[str, ast.ClassDef]]](list)
    for folder in found.submodule_search_locations or () if found else ():
        for file in sorted(Path(folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.ClassDef):
                    continue
                for call in node.decorator_list:
                    if isinstance(call, ast.Call) and ast.unparse(call.func) == f"{registry}.register":
                        given = [*call.args, *(word.value for word in call.keywords if word.arg == "backend")]
                        strings = (each for part in given for each in ast.walk(part) if isinstance(each, ast.Constant))
                        for each in strings:
                            names[str(each.value)].append((file.parent.name, node))
    return dict(names)


def parameters_in_source(package: str, registry: str, name: str) -> frozenset[str] | None:
    """Return the parameters of the classes that are registered under a name; None where one does not say."""
    found: set[str] = set()
    for _, node in registered_in_source(package, registry).get(name, ()):
        makers = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        if not makers or makers[0].args.kwarg:
            return None
        found.update(each.arg for each in (*makers[0].args.args, *makers[0].args.kwonlyargs))
    return frozenset(found) or None


def _engines(config: DictConfig, key: str) -> Iterable[str]:
    """Return the engines that read the section: the default of its dataclass, and others of the same folder."""
    from verl.workers.engine import EngineRegistry

    from verl_trgrpo.runs.readers import hints_of, located

    classes = registered_in_source("verl.workers.engine", "EngineRegistry")
    known = {name: folder for name, found in classes.items() for folder, _ in found}
    owner = located(str(selected(config, f"{key.rpartition('.')[0]}._target_")))
    own = getattr(owner, "strategy", None) if hints_of(owner) else None
    registered = [name for engines in EngineRegistry._engines.values() for name in engines]
    every = {*known, *registered}
    return [name for name in every if not own or known.get(name, known.get(own)) == known.get(own)]


def _backends(config: DictConfig, key: str) -> Iterable[str]:
    from verl.checkpoint_engine.base import CheckpointEngineRegistry

    if selected(config, f"{key.rpartition('.')[0]}.custom_backend_module"):
        return ()
    return {
        *registered_in_source("verl.checkpoint_engine", "CheckpointEngineRegistry"),
        *CheckpointEngineRegistry._registry,
    }


def _profilers(config: DictConfig, key: str) -> Iterable[str]:
    """Return the tools that veRL has a profiler for; without a tool it has none, and says nothing."""
    if selected(config, key) is None:
        return ()
    return compared_names("verl.utils.profiler.profile:DistProfiler.__init__", "_tool")


def _devices(_config: DictConfig, _key: str) -> Iterable[str]:
    from verl.plugin.platform.platform_manager import PlatformRegistry

    platforms = filter(None, map(PlatformRegistry.get, PlatformRegistry.registered_names()))
    return {each().device_name for each in platforms}


def _managers(config: DictConfig, key: str) -> Iterable[str]:
    place = selected(config, f"{MANAGER}.source"), selected(config, f"{MANAGER}.module.path")
    if place[0] != "register" and place != ("importlib", OWN_MANAGER):
        return ()
    return _registry("verl.experimental.reward_loop.reward_manager.registry:REWARD_MANAGER")(config, key)


def _loops(config: DictConfig, key: str) -> Iterable[str]:
    if selected(config, f"{AGENT}.agent_loop_config_path"):
        return ()
    return _registry("verl.experimental.agent_loop.agent_loop:_agent_loop_registry")(config, key)


def _optimizers(config: DictConfig, key: str) -> Iterable[str]:
    module = selected(config, f"{key.rpartition('.')[0]}.optimizer_impl")
    try:
        found = vars(importlib.import_module(module)) if module else {}
    except Exception:  # an import raises anything
        return ()
    return [name for name, value in found.items() if isinstance(value, type)]


_POLICY_LOSSES = _registry("verl.trainer.ppo.core_algos:POLICY_LOSS_REGISTRY")
_NAMES: dict[str, Callable[[DictConfig, str], Iterable[Any]]] = {
    "trainer.logger": lambda config, key: [
        *_registry("verl.utils.tracking:Tracking", "supported_backend")(config, key),
        *compared_names("verl.utils.tracking:Tracking.__init__", "backend"),
    ],
    "algorithm.adv_estimator": _registry("verl.trainer.ppo.core_algos:ADV_ESTIMATOR_REGISTRY"),
    f"{LOSS}.loss_mode": _POLICY_LOSSES,
    "distillation.distillation_loss.policy_loss_mode": _POLICY_LOSSES,
    "distillation.distillation_loss.loss_mode": _registry(
        "verl.trainer.distillation.losses:DISTILLATION_LOSS_REGISTRY"
    ),
    f"{MANAGER}.name": _managers,
    f"{TOOLS}.format": _registry("verl.experimental.agent_loop.tool_parser:ToolParser", "_registry"),
    f"{TOOLS}.tool_response_truncate_side": _compared(
        "verl.experimental.agent_loop.tool_agent_loop:ToolAgentLoop", "tool_response_truncate_side", "middle"
    ),
    "*profiler.tool": _profilers,
    "*.rollout.trace.backend": _compared("verl.utils.rollout_trace:RolloutTraceConfig.init", "backend"),
    f"{AGENT}.default_agent_loop": _loops,
    "*.optimizer": _optimizers,
    "trainer.v1.trainer_mode": _registry(f"{_V1}:TRAINER_REGISTRY"),
    "trainer.device": _devices,
    "transfer_queue.backend.storage_backend": _registry(
        "transfer_queue.storage.managers:StorageManagerFactory", "_registry"
    ),
    "*.strategy": _engines,
    "*.rollout.name": lambda config, key: {
        name for name, _ in _registry("verl.workers.rollout.base:_ROLLOUT_REGISTRY")(config, key)
    },
    "*.rollout.mode": lambda config, key: {
        mode for _, mode in _registry("verl.workers.rollout.base:_ROLLOUT_REGISTRY")(config, key)
    },
    "*.checkpoint_engine.backend": _backends,
    "*.checkpoint.save_contents": _compared(_CHECKPOINTS, "checkpoint_save_contents"),
    "*.checkpoint.load_contents": _compared(_CHECKPOINTS, "checkpoint_load_contents"),
    "trainer.resume_mode": _compared(f"{_V1}:PPOTrainer._load_checkpoint", "resume_mode"),
}


# Who is called with a name: each takes the value and the configuration.


def _kl(value: Any, _config: DictConfig) -> None:
    import torch
    from verl.trainer.ppo.core_algos import kl_penalty

    kl_penalty(torch.FloatTensor(1, 1), torch.FloatTensor(1, 1), value)


def _aggregation(value: Any, _config: DictConfig) -> None:
    import torch
    from verl.trainer.ppo.core_algos import agg_loss

    agg_loss(torch.ones(1, 1), torch.ones(1, 1), value, batch_num_tokens=1, global_batch_size=1)


def _class(value: Any, _config: DictConfig) -> None:
    from verl.utils.import_utils import load_class_from_fqn

    load_class_from_fqn(value)


def _module(value: Any, _config: DictConfig) -> None:
    importlib.import_module(value)


def _router(value: Any, _config: DictConfig) -> None:
    from verl.workers.rollout.router import _load_router_yaml

    _load_router_yaml(value)


def _own_object(section: str) -> Callable[[Any, DictConfig], None]:
    """Return what loads an object of this package; that of a user's own file is loaded with the rights that it may need."""

    def find(value: Any, config: DictConfig) -> None:
        from verl.utils.import_utils import load_extern_object

        path = selected(config, f"{section}.path")
        if str(path).startswith("pkg://verl_trgrpo."):
            load_extern_object(module_path=path, object_name=value)

    return find


_CALLED: dict[str, Callable[[Any, DictConfig], None]] = {
    "*.kl_loss_type": _kl,
    "algorithm.kl_penalty": _kl,
    "*.loss_agg_mode": _aggregation,
    "trainer.checkpoint_callback_class": _class,
    "*.checkpoint_engine.custom_backend_module": _module,
    "*.router_config_path": _router,
    f"{REWARD}.name": _own_object(REWARD),
    f"{_SAMPLER}.name": _own_object(_SAMPLER),
}


# Who is called with a section: each takes the section.


def _kl_control(section: DictConfig) -> None:
    from verl.trainer.ppo.core_algos import get_kl_controller

    get_kl_controller(section)


def _correction(section: DictConfig) -> None:
    import torch
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

    known = inspect.signature(compute_rollout_correction_and_rejection_mask).parameters
    given = {str(name): value for name, value in section.items() if name in known}
    ones = torch.ones(1, 1)
    compute_rollout_correction_and_rejection_mask(-ones, -ones, ones, **given)


_CALLED_WITH: dict[str, Callable[[DictConfig], None]] = {
    "algorithm.kl_ctrl": _kl_control,
    CORRECTION: _correction,
}
