"""Keys that neither veRL nor this package has: misspelt ones, which Hydra takes from a recipe without a word."""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import nearest_key
from verl_trgrpo.runs.checks.annotations import target_of
from verl_trgrpo.runs.compose import flat

# Options of a shaping, whose names the shaping itself knows.
_OWN_NAMES = "actor_rollout_ref.actor.policy_loss.shaping"
# A section that takes any key, with those that this package reads.
_CUSTOM, _CUSTOM_NAMES = "actor_rollout_ref.rollout.custom", ("search", "igrpo")
# Sections of old scripts: they stand among veRL's defaults, but its trainer does not read them.
_LEGACY = {
    "custom_reward_function": "reward.custom_reward_function",
    "reward_model": "reward.reward_model, reward.reward_manager and reward.num_workers",
    "sandbox_fusion": "reward.sandbox_fusion",
}
# Values that stand there, and that its engines do not read.
_UNREAD = {f"{part}.grad_clip": f"{part}.optim.clip_grad" for part in ("actor_rollout_ref.actor", "critic")}


def key_findings(
    config: DictConfig, known: DictConfig, added: Collection[str] = ()
) -> tuple[list[Finding], DictConfig]:
    """Complaints about keys that are unknown or not read, and the configuration without the unknown ones.

    Known is what veRL's and this package's configurations have, the fields of the dataclasses that they name, and whatever
    stands below a key that is empty or null there, which takes anything.

    Args:
        config: of the run.
        known: a configuration with every known key.
        added: keys that were added on purpose, with Hydra's plus.
    """
    config = config.copy()
    OmegaConf.set_struct(config, False)
    unknown = _take_out(config, known, "", set(added))
    places = list(_places(known, ""))
    findings = [_finding(key, names, places) for key, names in unknown]
    return findings + _legacy_findings(config) + _unread_findings(config, known) + _custom_findings(config), config


def _take_out(node: DictConfig, known: Any, prefix: str, added: set[str]) -> list[tuple[str, set[str]]]:
    """Remove unknown keys from a node, in place; return each with the names that are known beside it."""
    names = {str(name) for name in known} | _dataclass_fields(node)
    unknown = []
    for name in list(node):
        key = f"{prefix}{name}"
        child, reference = node._get_node(name), known._get_node(name) if name in known else None
        if str(name) in names:
            if (
                isinstance(child, DictConfig)
                and isinstance(reference, DictConfig)
                and len(reference)
                and key != _OWN_NAMES
            ):
                unknown += _take_out(child, reference, f"{key}.", added)
        elif not any(f"{other}.".startswith(f"{key}.") for other in added):
            unknown.append((key, names))
            del node[name]
    return unknown


def _places(known: DictConfig, prefix: str) -> Iterator[str]:
    """All known keys of single values; without those that are not read."""
    name: Any
    for name in known:
        key, child = f"{prefix}{name}", known._get_node(name)
        if isinstance(child, DictConfig) and key not in _LEGACY:
            yield from _places(child, f"{key}.")
        elif key not in _LEGACY:
            yield key


def _dataclass_fields(node: DictConfig) -> set[str]:
    """Fields of the dataclass that veRL builds from a node; some have no line in veRL's YAML files."""
    found = target_of(node)
    return {field.name for field in fields(found)} if is_dataclass(found) else set()


def _finding(key: str, names: set[str], places: list[str]) -> Finding:
    section, dot, last = key.rpartition(".")
    meant = nearest_key(key, [*(f"{section}{dot}{name}" for name in names), *places])
    hint = f"did you mean {meant}?" if meant else "remove it"
    if section and _read_by_verl(section.rpartition(".")[2], last):
        hint = hint if meant else "check where it belongs"
        return Finding.warning(
            key, f"{key} is not among veRL's defaults, though its code asks for a key of this name; {hint}"
        )
    reason = f"{key} is a key that neither veRL nor this package has"
    return Finding.error(key, f"{reason}; {hint} (on the command line +{key}=... adds it on purpose)")


def _legacy_findings(config: DictConfig) -> list[Finding]:
    findings = []
    for section, place in _LEGACY.items():
        values = flat(config[section], f"{section}.") if isinstance(config.get(section), DictConfig) else {}
        given = [f"{key}={value}" for key, value in values.items() if value is not None]
        if given:
            message = f"{', '.join(given)}: veRL's trainer no longer reads {section}; set keys of {place} instead"
            findings.append(Finding.warning(section, message))
    return findings


def _unread_findings(config: DictConfig, known: DictConfig) -> list[Finding]:
    given = {key: OmegaConf.select(config, key) for key in _UNREAD}
    return [
        Finding.warning(key, f"{key}={value}: veRL's engines do not read it; set {_UNREAD[key]}")
        for key, value in given.items()
        if value is not None and value != OmegaConf.select(known, key)
    ]


def _custom_findings(config: DictConfig) -> list[Finding]:
    """Keys of the user's own that are written much like one that this package reads."""
    custom = OmegaConf.select(config, _CUSTOM)
    names = [str(name) for name in custom if name not in _CUSTOM_NAMES] if isinstance(custom, DictConfig) else []
    return [
        Finding.warning(
            f"{_CUSTOM}.{name}", f"{_CUSTOM}.{name} is not read by this package; did you mean {_CUSTOM}.{close[0]}?"
        )
        for name in names
        if (close := difflib.get_close_matches(name, _CUSTOM_NAMES, n=1, cutoff=0.75))
    ]


@cache
def _read_by_verl(section: str, name: str) -> bool:
    """Whether veRL's code asks this section for an option of this name, as in ``config.trainer.get("name")``.

    A ``config.get("name")`` counts for the section that the file's name has, such as ``rl_dataset.py`` for ``data``.
    """
    spec = importlib.util.find_spec("verl")
    asked = re.compile(rf"(\w+)[\"'\]]*\.get\(\s*[\"']{re.escape(name)}[\"']")
    roots = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    for path in (path for root in roots for path in Path(root).rglob("*.py")):
        owners = asked.findall(path.read_text(errors="replace"))
        if any(section in (path.stem if owner == "config" else owner) for owner in owners):
            return True
    return False
