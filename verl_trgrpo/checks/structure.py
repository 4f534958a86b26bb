"""Check the structure of a configuration: sections, deleted keys, unknown keys and keys that veRL does not read.

Imports neither veRL nor torch, unless an unknown key may be a field of one of veRL's dataclasses.
"""

from __future__ import annotations

import pydoc
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import as_plain_yaml, nearest, nearest_key
from verl_trgrpo.runs.compose import flat, selected
from verl_trgrpo.runs.keys import MANAGER_OPTIONS, OLD_SECTIONS, SHAPING, place_of

# The shaping itself checks the names of its parameters.
# A section that takes any key, with those that this package reads.
_CUSTOM, _CUSTOM_NAMES = "actor_rollout_ref.rollout.custom", ("search",)


def section_findings(view: RunView) -> list[Finding]:
    """Check that no key of veRL's was deleted and that no section was replaced by another value."""
    deleted = [word[1:].partition("=")[0] for word in view.run.arguments if word.startswith("~")]
    findings = [
        Finding.error(key, f"~{key}: veRL reads this key; set it to another value instead")
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
    """Check for keys that are unknown, or that veRL does not read.

    Known are the keys of the run's defaults, the fields of the dataclasses that it names, and everything below a key that is
    empty or null there. Keys that were added on the command line with a plus are not reported.
    """
    unknown = [
        (key, names)
        for key, names in _unknown_keys(view.config, view.defaults, "")
        if key != MANAGER_OPTIONS and not any(f"{added}.".startswith(f"{key}.") for added in view.run.added)
    ]
    places = [key for key in flat(view.defaults) if key.partition(".")[0] not in OLD_SECTIONS] if unknown else []
    findings = [_unknown_finding(key, names, places) for key, names in unknown]
    below = tuple(f"{key}." for key, _ in unknown)
    return findings + [
        each for each in _unread_findings(view.config, view.defaults) if not each.where.startswith(below)
    ]


def _unknown_keys(node: DictConfig, defaults: DictConfig, prefix: str) -> Iterator[tuple[str, set[str]]]:
    """Yield the unknown keys of a section and of those below it, each with the names that are known beside it."""
    names = {str(name) for name in defaults}
    for name in node:
        key, child, default = f"{prefix}{name}", node_of(node, name), node_of(defaults, name)
        if str(name) not in names:
            if str(name) not in _dataclass_fields(node):
                yield key, names | _dataclass_fields(node)
        elif key != SHAPING and is_section(child) and is_section(default):
            yield from _unknown_keys(child, default, f"{key}.")


def _unknown_finding(key: str, names: set[str], places: list[str]) -> Finding:
    section, dot, _ = key.rpartition(".")
    known = [*(f"{section}{dot}{name}" for name in names), *places]
    meant = place_of(key, known) or nearest_key(key, known)
    fix = f"did you mean {meant}?" if meant else "remove it"
    return Finding.error(key, f"{key}: unknown key; {fix} (+{key}=... on the command line adds it)")


def _unread_findings(config: DictConfig, defaults: DictConfig) -> list[Finding]:
    findings = []
    for key, value in flat(config).items():
        if value is not None and value != selected(defaults, key) and (place := place_of(key)):
            plus = " (on the command line with a plus)" if place.startswith(MANAGER_OPTIONS) else ""
            message = f"{key}={as_plain_yaml(value)}: veRL's trainer does not read it; set {place}{plus}"
            findings.append(Finding.warning(key, message))
    for name in map(str, selected(config, _CUSTOM) or ()):
        meant = nearest(name, _CUSTOM_NAMES, cutoff=0.75)
        if meant and name not in _CUSTOM_NAMES:
            key = f"{_CUSTOM}.{name}"
            findings.append(
                Finding.warning(key, f"{key}: this package does not read it; did you mean {_CUSTOM}.{meant}?")
            )
    return findings


def node_of(section: DictConfig, name: Any) -> Any:
    """Return the node of a key without resolving it; None where there is none."""
    return section._get_node(name, validate_access=False)


def is_section(node: Any) -> bool:
    """Return True for a section with keys; False for null, for a reference and for an empty section."""
    return isinstance(node, DictConfig) and not node._is_interpolation() and len(node) > 0


@cache
def located(name: str) -> Any:
    """Return the class or function of a ``_target_``; None where it cannot be imported."""
    try:
        return pydoc.locate(name)
    except Exception:  # an import raises anything; building the section reports it
        return None


def target_of(section: DictConfig) -> Any:
    """Return the class or function that a section names in its ``_target_``, or None."""
    node = node_of(section, "_target_")
    return None if node is None else located(str(node._value()))


def _dataclass_fields(section: DictConfig) -> set[str]:
    """Return the fields of the dataclass that veRL builds from a section; some have no line in veRL's YAML files."""
    found = target_of(section)
    return {field.name for field in fields(found)} if is_dataclass(found) else set()
