"""Say which keys of a configuration have a reader.

Readers are the callable that gets a section as its arguments, the dataclass that veRL builds from a section, and places in
veRL's source, which ``verl_keys.yaml`` lists for one release (``docs/make_key_table.py`` makes it). A dictionary that one of them
takes as a whole, such as ``turbo_config``, may have any key. Beside them Python files of the user's own are read, not run: a key
whose name is in them has a reader there; and so has a key to which another one refers.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import pkgutil
import pydoc
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml
from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.foreign import ForeignFileError, read_foreign
from verl_trgrpo.runs.keys import (
    ACTOR,
    AGENT,
    MANAGER,
    MANAGER_OPTIONS,
    MODEL,
    OLD_SECTIONS,
    OVERLONG,
    REF,
    REWARD,
    ROLLOUT,
    SHAPING,
    flat,
    selected,
)
from verl_trgrpo.tasks.registry import known_agent_loops

KEY_TABLE = Path(__file__).parent / "verl_keys.yaml"
BUILT = (ACTOR, REF, ROLLOUT, MODEL, "critic", "distillation", "skip", "trainer.v1.separate_async.hybrid_rollout")
"""Sections from which veRL builds dataclasses, which refuse a key that is not a field; other sections it reads as they are."""
_SAMPLER = "trainer.v1.sampler"
_ENGINES = f"{ROLLOUT}.engine_kwargs"
# Ray hands these to the program nsys as options of the command line; whatever that knows is read.
_PROFILED = "global_profiler.global_tool_config.nsys"
_OF_PROGRAMS = (f"{_PROFILED}.controller_nsight_options", f"{_PROFILED}.worker_nsight_options")
# Keys that name a file of Python or a module behind pkg://, and keys that name a class by its dotted name.
_FILES = (f"{REWARD}.path", f"{MANAGER}.module.path", "data.custom_cls.path", f"{_SAMPLER}.custom_sampler.path")
_CLASSES = (
    "trainer.checkpoint_callback_class", f"{AGENT}.agent_loop_manager_class", f"{ROLLOUT}.checkpoint_manager_class",
    f"{MODEL}.external_lib", f"{ROLLOUT}.checkpoint_engine.custom_backend_module",
)  # fmt: skip
_REFERENCE = re.compile(r"\$\{(?:oc\.select: *)?(\.*\w[\w.]*)")
_TARGET = re.compile(r"_target_: *['\"]?([\w.]+)")


@dataclass(frozen=True)
class Unread:
    """A key that has no reader.

    Args:
        key: dotted.
        known: names that have one in the same section.
        fails: the class that veRL builds from the section refuses the key, so that the run ends; "" if the key has no effect.
    """

    key: str
    known: frozenset[str]
    fails: str = ""


@cache
def key_table() -> Mapping[str, Any]:
    """Return the table of a release: `verl`, its version; `unread`, trainers by key; `read`, names without a line, by section."""
    content: Mapping[str, Any] = yaml.safe_load(KEY_TABLE.read_text(encoding="utf-8"))
    return content


def unread_keys(
    config: DictConfig, defaults: DictConfig, on_path: str = "", whole: DictConfig | None = None
) -> Iterator[Unread]:
    """Yield the keys without a reader; of a section without one, the section alone. The first call may import veRL.

    Args:
        config: composed.
        defaults: the configuration of the same groups without settings.
        on_path: look at this key and the sections that it is in alone.
        whole: the configuration that `config` is a part of.
    """
    found = [*_unread_below(config, defaults, "", None, on_path)]
    whole = config if whole is None else whole
    words = _own_words(whole) if found else frozenset()
    references = _references(whole) if found else frozenset()
    for each in found:
        referred = any(
            f"{each.key}.".startswith(f"{key}.") or f"{key}.".startswith(f"{each.key}.") for key in references
        )
        if each.fails or not (referred or each.key.rpartition(".")[2] in words):
            yield each


def has_reader(config: DictConfig, key: str) -> bool:
    """Return whether a key that is added to a configuration of groups alone would have a reader."""
    parts, added = key.split("."), OmegaConf.create()
    for length in range(1, len(parts)):  # the sections around it alone: a copy of the whole takes half a second
        section = ".".join(parts[:length])
        if (node := selected(config, section)) is not None and not isinstance(node, DictConfig):
            return False  # a part of the key is a value, or a name in a list
        if target := selected(config, f"{section}._target_"):
            OmegaConf.update(added, f"{section}._target_", target)
    OmegaConf.update(added, key, "?")
    return not any(True for _ in unread_keys(added, config, key, config))


def _unread_below(node: DictConfig, defaults: Any, prefix: str, owner: Any, on_path: str) -> Iterator[Unread]:
    """Yield the keys without a reader below a section, `owner` being the dataclass that the section around it has for it."""
    section, target = prefix.rstrip("."), node_of(node, "_target_")
    if target is not None:
        owner = located(str(target._value()))
        if not is_dataclass(owner):
            return  # a function, which checks its own arguments; or a class that cannot be imported here
    hints = hints_of(owner)
    known: Any = defaults if is_section(defaults) else {}
    names = {"_target_", *map(str, known), *hints, *_arguments(section)}
    built = bool(hints) and f"{section}.".startswith(tuple(f"{each}." for each in BUILT))
    names |= set() if built else {*key_table()["read"].get(section, ())}
    for name in map(str, node):
        key, child = f"{prefix}{name}", node_of(node, name)
        if on_path and not f"{on_path}.".startswith(f"{key}."):
            continue
        inner, default = dataclass_in(hints.get(name)), node_of(known, name) if known else None
        if name not in names:
            yield Unread(key, frozenset(names), owner.__name__ if built else "")
        elif not is_section(child) or key in (SHAPING, *OLD_SECTIONS, *_OF_PROGRAMS) or section == _ENGINES:
            continue
        elif inner or _arguments(key) or "_target_" in child or (is_section(default) and not _says(hints.get(name))):
            yield from _unread_below(child, default, f"{key}.", inner, on_path)


def _says(hint: Any) -> bool:
    """Return whether an annotation says what a section is, such as a dictionary of any keys."""
    return hint is not None and Any not in (hint, *(get_args(hint) if get_origin(hint) is Union else ()))


def _arguments(section: str) -> frozenset[str]:
    """Return the names that whoever gets a section as a whole takes."""
    if section.partition(".")[0] == "transfer_queue":
        return _of_transfer_queue(section.partition(".")[2])
    return _ASKED[section]() if section in _ASKED else frozenset()


@cache
def _of_transfer_queue(section: str) -> frozenset[str]:
    """Return the names in a section of TransferQueue's own defaults, with which it merges what it is given."""
    found = importlib.util.find_spec("transfer_queue")
    if found is None or not found.submodule_search_locations:
        return frozenset()
    content = OmegaConf.load(Path(found.submodule_search_locations[0]) / "config.yaml")
    return frozenset(map(str, (selected(content, section) if section else content) or ()))


@cache
def _of_ray_init() -> frozenset[str]:
    import ray

    taken = {name for name, each in inspect.signature(ray.init).parameters.items() if each.kind is not each.VAR_KEYWORD}
    return frozenset(
        taken | python_words(inspect.getsource(ray.init))
    )  # those with an underscore it takes from its kwargs


@cache
def _of_runtime_env() -> frozenset[str]:
    from ray.runtime_env import RuntimeEnv

    return frozenset(RuntimeEnv.known_fields)


@cache
def _of_reward_managers() -> frozenset[str]:
    return frozenset().union(*map(_words_of_module, (_REWARD_MANAGERS, *_modules_in(_REWARD_MANAGERS))))


@cache
def _of_buffers() -> frozenset[str]:
    return _words_of_module("verl.trainer.ppo.v1.replay_buffer")


def _of_redrawing() -> frozenset[str]:
    from verl.trainer.ppo.core_algos import compute_pf_ppo_reweight_data

    return frozenset(inspect.signature(compute_pf_ppo_reweight_data).parameters)


def _of_servers() -> frozenset[str]:
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY

    return frozenset(name for name, _ in _ROLLOUT_REGISTRY)


def _sections_of_loops() -> frozenset[str]:
    return frozenset(loop.section for loop in known_agent_loops().values() if loop.section)


def _references(config: DictConfig) -> frozenset[str]:
    """Return the dotted keys to which values of a configuration refer."""
    found = set()
    for key, value in flat(config).items():
        for reference in _REFERENCE.findall(value) if isinstance(value, str) else ():
            name = reference.lstrip(".")
            up = key.split(".")[: -(len(reference) - len(name))] if name != reference else []
            found.add(".".join([*up, name]))
    return frozenset(found)


def _own_words(config: DictConfig) -> frozenset[str]:
    """Return the words of the Python files of the user's own that a run loads. They are read, not run."""
    modules = [name.strip() for name in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")]
    modules += [str(selected(config, key) or "").rpartition(".")[0] for key in _CLASSES]
    targets = {key: value for key, value in flat(config).items() if key.endswith("._target_")}
    modules += [str(value).rpartition(".")[0] for key, value in targets.items() if not key.startswith("hydra.")]
    places = [str(selected(config, key) or "") for key in _FILES]
    modules += [place.removeprefix("pkg://") for place in places if place.startswith("pkg://")]
    loops = selected(config, f"{AGENT}.agent_loop_config_path")
    if loops:
        try:
            content = read_foreign(Path(str(loops)).expanduser()).decode(errors="replace")
        except (ForeignFileError, OSError):  # the check of the file reports it
            content = ""
        modules += [name.rpartition(".")[0] for name in _TARGET.findall(content)]
    own = {name for name in modules if name and not name.startswith(("verl.", "torch."))}
    files = [place for place in places if place and "://" not in place]
    return frozenset().union(*map(_words_of_module, own), *map(_words_of_file, files))


@cache
def _words_of_module(module: str) -> frozenset[str]:
    place = _place_of(module)
    files = (place.with_suffix(".py"), place / "__init__.py") if place else ()
    return frozenset().union(*(_words_of_file(str(file)) for file in files if file.is_file()))


def _place_of(module: str) -> Path | None:
    """Return where a module is, without its suffix; None where its package is not. Unlike ``find_spec`` this imports nothing."""
    package, *parts = module.split(".")
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    folders = list(found.submodule_search_locations or ()) if found else []
    if found and found.origin and not folders:
        return Path(found.origin).with_suffix("")
    return Path(folders[0], *parts) if folders else None


def _words_of_file(path: str) -> frozenset[str]:
    try:
        return python_words(read_foreign(Path(path).expanduser()).decode(errors="replace"))
    except (ForeignFileError, OSError):  # another check reports the file
        return frozenset()


def _modules_in(package: str) -> list[str]:
    return [f"{package}.{each.name}" for each in pkgutil.iter_modules([str(_place_of(package))])]


# By section, what its names are taken from.
_FSDP = "verl.workers.engine.fsdp.transformer_impl"
_REWARD_MANAGERS = "verl.experimental.reward_loop.reward_manager"
_ASKED: dict[str, Callable[[], frozenset[str]]] = {
    "ray_kwargs.ray_init": _of_ray_init,
    "ray_kwargs.ray_init.runtime_env": _of_runtime_env,
    MANAGER_OPTIONS: _of_reward_managers,
    OVERLONG: _of_reward_managers,
    f"{_SAMPLER}.sampler_kwargs": _of_buffers,
    f"{ROLLOUT}.custom": _sections_of_loops,
    _ENGINES: _of_servers,  # each has the arguments of its engine
    "algorithm.pf_ppo": _of_redrawing,
    **{
        f"{section}.{name}": partial(_words_of_module, module)
        for section in (f"{ACTOR}.fsdp_config", f"{REF}.fsdp_config", "critic.fsdp")
        for name, module in (("wrap_policy", "verl.utils.fsdp_utils"), ("mixed_precision", _FSDP))
    },
    **{f"{section}.fused_kernel_options": partial(_words_of_module, _FSDP) for section in (MODEL, "critic.model")},
}


def python_words(source: str) -> frozenset[str]:
    """Return the attributes, keyword arguments, parameters and strings in a piece of Python; nothing if it is not Python."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Attribute(attr=name)
                | ast.keyword(arg=str(name))
                | ast.arg(arg=name)
                | ast.Constant(value=str(name))
            ):
                found.update(name.split("."))
    return frozenset(found)


def is_section(node: Any) -> bool:
    """Return True for a section with keys; False for null, for a reference and for an empty section."""
    return isinstance(node, DictConfig) and not node._is_interpolation() and len(node) > 0


def node_of(section: DictConfig, name: Any) -> Any:
    """Return the node of a key without resolving it; None where there is none."""
    return section._get_node(name, validate_access=False)


@cache
def located(name: str) -> Any:
    """Return the class or function of a ``_target_``; None where it cannot be imported."""
    try:
        return pydoc.locate(name)
    except Exception:  # an import raises anything; building the section reports it
        return None


@cache
def hints_of(owner: Any) -> Mapping[str, Any]:
    """Return the annotations of a dataclass by field; nothing for anything else. One that cannot be evaluated is None."""
    if not is_dataclass(owner):
        return {}
    try:
        found = get_type_hints(owner)
    except Exception:
        found = {}
    return {field.name: found.get(field.name) for field in fields(owner)}


def dataclass_in(hint: Any) -> Any:
    """Return the dataclass that an annotation is, or is one part of; None without one."""
    return next((each for each in (hint, *get_args(hint)) if isinstance(each, type) and is_dataclass(each)), None)
