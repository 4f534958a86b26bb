"""Check for settings that no module of the chosen trainer reads, by a scan of the source files.

A key counts as read where its last name is an attribute that is read, or part of a string (an argument of ``get``, a subscript, a
dotted key), in any file that the trainer may execute; ``self.name = config.get("name")`` alone does not read it. So a name that
several sections have counts as read in all of them; the table in :mod:`~verl_trgrpo.checks.switches` is for those. Nothing
is imported.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import as_plain_yaml
from verl_trgrpo.runs.compose import ComposedRun, flat, selected
from verl_trgrpo.runs.keys import ACTOR

# Files and directories of veRL that its v1 trainer may execute. The first hold most of what is read.
_VERL = (
    "trainer/ppo/v1/trainer_base.py", "workers/engine_workers.py", "workers/engine/fsdp/transformer_impl.py",
    "trainer/ppo/core_algos.py", "workers/rollout/vllm_rollout/vllm_async_server.py", "utils/dataset/rl_dataset.py",
    "experimental/agent_loop", "experimental/reward_loop", "trainer/ppo", "workers", "trainer/config", "trainer/main_ppo.py",
    "trainer/constants_ppo.py", "trainer/distillation", "experimental/teacher_loop", "experimental/separation/engine_workers.py",
    "checkpoint_engine", "single_controller", "utils", "models", "tools", "plugin", "protocol.py", "base_config.py",
)  # fmt: skip
_OWN = ("verl_plugin", "core", "tasks", "common")
# Engines, rollout engines and trainers that a run has not chosen, and what only veRL's other trainers execute.
_ENGINES = {
    "fsdp": ("workers/engine/fsdp/",),
    "fsdp2": ("workers/engine/fsdp/",),
    "megatron": (
        "workers/engine/megatron/", "workers/engine/mindspeed/", "workers/config/megatron_peft.py", "utils/megatron",
        "models/mcore/",
    ),
    "veomni": ("workers/engine/veomni/",),
    "torchtitan": ("workers/engine/torchtitan/",),
    "automodel": ("workers/engine/automodel/",),
}  # fmt: skip
_ROLLOUTS = {name: (f"workers/rollout/{name}_rollout/",) for name in ("vllm", "sglang", "trtllm")}
_MODES = {
    "sync": ("trainer/ppo/v1/trainer_sync.py",),
    "colocate_async": ("trainer/ppo/v1/trainer_colocate_async.py",),
    "separate_async": ("trainer/ppo/v1/trainer_separate_async.py",),
}
_OTHER_TRAINERS = ("workers/reward_manager/", "workers/engine_workers_tinker.py", "workers/rollout/hf_rollout.py")
# Classes of veRL's older trainer in files that the v1 trainer imports functions from.
_OTHER_CLASSES = ("RayPPOTrainer", "AsyncRolloutRequest")
# Sections that are handed to other libraries as they are, those with findings of their own, and what Hydra reads.
_EXEMPT = (
    "*_target_", "model_engine", "hydra.*", "*profiler*", "ray_kwargs.*", "transfer_queue.*", "*engine_kwargs*", "*override_*",
    "*turbo_config*", "*apply_chat_template_kwargs*", "*sampler_kwargs*", "*reward_kwargs*", "*.rollout.custom.*", "*.shaping.*",
    "*.model.lora.*", "*.grad_clip", "data.truncation",
    "custom_reward_function.*", "reward_model.*", "sandbox_fusion.*", "*.mm_processor_kwargs*",
)  # fmt: skip


def unread_findings(run: ComposedRun, changed: Mapping[str, Any]) -> list[Finding]:
    """Warn about settings that differ from their defaults and that nothing reads.

    Args:
        run: the composed run; with veRL's older trainer (``use_v1=false``) nothing is known.
        changed: see :func:`~verl_trgrpo.runs.compose.changed_values`.
    """
    config = run.config
    if not selected(config, "trainer.use_v1"):
        return []
    known, asked = flat(run.defaults), {}
    for key in changed:
        if any(fnmatchcase(key, pattern) for pattern in _EXEMPT):
            continue
        name = _deciding_name(key, run.defaults, known)
        if key in known or not _has_unknown_modules(config):
            asked[key] = name
    unread = _unread(frozenset(asked.values()), config)
    referred = [value for value in flat(config).values() if isinstance(value, str) and "${" in value]
    return [
        Finding.warning(key, f"{key}={as_plain_yaml(changed[key])}: set, but not read by this trainer; remove it")
        for key, name in asked.items()
        if name in unread and not any(re.search(rf"[.{{]{re.escape(name)}\b", value) for value in referred)
    ]


def _deciding_name(key: str, defaults: DictConfig, known: Mapping[str, Any]) -> str:
    """Return the part of a key that has to be read: the last one that is known, or the first one that is not."""
    parts = key.split(".")
    for end in range(1, len(parts) + 1):
        prefix = ".".join(parts[:end])
        if prefix in known or selected(defaults, prefix) is None:
            return parts[end - 1]
    return parts[-1]


def _has_unknown_modules(config: DictConfig) -> bool:
    """Return True if modules that are not scanned may read keys which were added to veRL's."""
    return bool(os.environ.get("VERL_USE_EXTERNAL_MODULES") or selected(config, "actor_rollout_ref.model.external_lib"))


def _unread(names: frozenset[str], config: DictConfig) -> set[str]:
    left = set(names)
    for file in (*_trainer_files(*_chosen(config)), *_own_files(), *_files_of_run(config)):
        if here := {name for name in left if name in _text(file)}:
            left -= here & _names_read(file)
        if not left:
            break
    return left


def _chosen(config: DictConfig) -> tuple[str, str, str]:
    """Return strategy, rollout engine and trainer mode; "" for an engine where several may be in use."""
    served = selected(config, "reward.reward_model.enable") or selected(config, "distillation.enabled")
    rollout = "" if served else str(selected(config, "actor_rollout_ref.rollout.name"))
    return str(selected(config, f"{ACTOR}.strategy")), rollout, str(selected(config, "trainer.v1.trainer_mode"))


@cache
def _trainer_files(strategy: str, rollout: str, mode: str) -> tuple[Path, ...]:
    """Return the files of veRL that a trainer may execute, without those of engines and trainers that were not chosen."""
    left_out = [*_OTHER_TRAINERS]
    for choices, chosen in ((_ENGINES, strategy), (_ROLLOUTS, rollout), (_MODES, mode)):
        kept = choices.get(chosen)
        if kept is not None:
            left_out += [place for places in choices.values() for place in places if place not in kept]
    root = _package("verl")
    files = dict.fromkeys(file for place in _VERL for file in _python_files(root / place))
    return tuple(file for file in files if not file.relative_to(root).as_posix().startswith(tuple(left_out)))


@cache
def _own_files() -> tuple[Path, ...]:
    root = Path(__file__).parents[2]
    return tuple(file for place in _OWN for file in _python_files(root / place))


def _files_of_run(config: DictConfig) -> Iterator[Path]:
    """Yield the local Python files that values of a configuration name, with a path or behind ``pkg://``."""
    for value in flat(config).values():
        if not isinstance(value, str):
            continue
        if value.startswith("pkg://"):
            try:
                found = importlib.util.find_spec(value.removeprefix("pkg://").partition(".")[0])
            except (ImportError, ValueError):
                continue
            for place in (found.submodule_search_locations or []) if found else []:
                if place != str(Path(__file__).parents[2]):
                    yield from _python_files(Path(place))
        elif value.endswith(".py") and (path := Path(value).expanduser()).is_file():
            yield path


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"{name} is not installed", name=name)
    return Path(found.submodule_search_locations[0])


def _python_files(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


@cache
def _names_read(file: Path) -> frozenset[str]:
    """Return the attributes that a file reads and the dotted parts of its strings; docstrings do not count."""
    try:
        tree = ast.parse(_text(file))
    except SyntaxError:
        return frozenset(re.findall(r"\w+", _text(file)))
    names: set[str] = set()
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.ClassDef) and node.name in _OTHER_CLASSES:
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Assign) and (read := _only_kept(node)):
            left.extend(read)
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.update(re.findall(r"[\w-]+", node.value))
        left.extend(ast.iter_child_nodes(node))
    return frozenset(names)


def _only_kept(node: ast.Assign) -> list[ast.expr]:
    """Return the other expressions of ``self.name = config.get("name", ...)``, [] for any other assignment.

    There the setting is read if something reads the attribute.
    """
    target, call = node.targets[0], node.value
    if not (isinstance(target, ast.Attribute) and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
        return []
    first = call.args[0] if call.func.attr == "get" and call.args else None
    if not (isinstance(first, ast.Constant) and first.value == target.attr):
        return []
    return [call.func.value, *call.args[1:]]
