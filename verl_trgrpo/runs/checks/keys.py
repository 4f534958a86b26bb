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

from verl_trgrpo.common.problems import Finding, error, warning
from verl_trgrpo.runs.checks.annotations import target_of
from verl_trgrpo.runs.compose import flat

# Options of a shaping, whose names the shaping itself knows.
_OWN_NAMES = "actor_rollout_ref.actor.policy_loss.shaping"
# A section that takes any key, with those that this package reads.
_CUSTOM, _CUSTOM_NAMES = "actor_rollout_ref.rollout.custom", ("search",)
# Sections of old scripts: they stand among veRL's defaults, but its trainer does not read them.
_LEGACY = {
    "custom_reward_function": "reward.custom_reward_function",
    "reward_model": "reward.reward_model, reward.reward_manager and reward.num_workers",
    "sandbox_fusion": "reward.sandbox_fusion",
}


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
    places = dict(_places(known, ""))
    findings = [_finding(key, names, value, places) for key, names, value in unknown]
    return findings + _legacy_findings(config) + _custom_findings(config), config


def _take_out(node: DictConfig, known: Any, prefix: str, added: set[str]) -> list[tuple[str, set[str], Any]]:
    """Remove unknown keys from a node, in place; return each with the names that are known beside it, and its value."""
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
            unknown.append((key, names, child))
            del node[name]
    return unknown


def _places(known: DictConfig, prefix: str) -> Iterator[tuple[str, Any]]:
    """All known keys with their nodes, sections included; without those that are not read."""
    name: Any
    for name in known:
        key, child = f"{prefix}{name}", known._get_node(name)
        if key not in _LEGACY:
            yield key, child
            if isinstance(child, DictConfig):
                yield from _places(child, f"{key}.")


def _dataclass_fields(node: DictConfig) -> set[str]:
    """Fields of the dataclass that veRL builds from a node; some have no line in veRL's YAML files."""
    found = target_of(node)
    return {field.name for field in fields(found)} if is_dataclass(found) else set()


def _finding(key: str, names: set[str], value: Any, places: dict[str, Any]) -> Finding:
    section, _, last = key.rpartition(".")
    meant = _meant(key, names, value, places)
    hint = f"did you mean {meant}?" if meant else "remove it"
    if section and _read_by_verl(section.rpartition(".")[2], last):
        hint = hint if meant else "check where it belongs"
        return warning(key, f"{key} is not among veRL's defaults, though its code asks for a key of this name; {hint}")
    reason = f"{key} is a key that neither veRL nor this package has"
    return error(key, f"{reason}; {hint} (on the command line +{key}=... adds it on purpose)")


def _meant(key: str, names: set[str], value: Any, places: dict[str, Any]) -> str:
    """The key beside an unknown one that is written much like it, else one of the same name in another section."""
    section, dot, last = key.rpartition(".")
    if close := difflib.get_close_matches(last, sorted(names), n=1, cutoff=0.75):
        return f"{section}{dot}{close[0]}"
    below = set(value) if isinstance(value, DictConfig) else set()

    def likeness(place: str) -> tuple[int, bool, float]:
        node = places[place]
        shared = below & set(node) if isinstance(node, DictConfig) else ()
        inside = bool(section) and place.startswith(f"{section}.")
        return len(shared), inside, difflib.SequenceMatcher(None, key, place).ratio()

    return max((place for place in places if place.rpartition(".")[2] == last), key=likeness, default="")


def _legacy_findings(config: DictConfig) -> list[Finding]:
    findings = []
    for section, place in _LEGACY.items():
        values = flat(config[section], f"{section}.") if isinstance(config.get(section), DictConfig) else {}
        given = [f"{key}={value}" for key, value in values.items() if value is not None]
        if given:
            message = f"{', '.join(given)}: veRL's trainer no longer reads {section}; set keys of {place} instead"
            findings.append(warning(section, message))
    return findings


def _custom_findings(config: DictConfig) -> list[Finding]:
    """Keys of the user's own that are written much like one that this package reads."""
    custom = OmegaConf.select(config, _CUSTOM)
    names = [str(name) for name in custom if name not in _CUSTOM_NAMES] if isinstance(custom, DictConfig) else []
    return [
        warning(
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
