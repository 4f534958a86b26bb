"""Keys that neither veRL nor this package has: misspelt ones, which Hydra takes from a recipe without a word."""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Collection
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.problems import Finding, error, warning

# Options of a shaping, whose names the shaping itself knows.
_OWN_NAMES = "actor_rollout_ref.actor.policy_loss.shaping"


def key_findings(
    config: DictConfig, known: DictConfig, added: Collection[str] = ()
) -> tuple[list[Finding], DictConfig]:
    """Complaints about unknown keys, and the configuration without them.

    Known is what veRL's and this package's configurations have, the fields of the dataclasses that they name, and whatever
    stands below a key that is empty or null there, which takes anything.

    Args:
        config: of the run.
        known: a configuration with every known key.
        added: keys that were added on purpose, with Hydra's plus; what stands below them is known, too.
    """
    config = config.copy()
    OmegaConf.set_struct(config, False)
    return [_finding(key, names) for key, names in _take_out(config, known, "", set(added))], config


def _take_out(node: DictConfig, known: Any, prefix: str, added: set[str]) -> list[tuple[str, list[str]]]:
    """Remove unknown keys from a node, in place; return each with the names that are known beside it."""
    names = {str(name) for name in known} | _dataclass_fields(node)
    unknown = []
    for name in list(node):
        key = f"{prefix}{name}"
        if key in added or key == _OWN_NAMES:
            continue
        if str(name) not in names:
            if not any(other.startswith(f"{key}.") for other in added):
                unknown.append((key, [f"{prefix}{other}" for other in sorted(names)]))
                del node[name]
            continue
        child, reference = node._get_node(name), known._get_node(name) if name in known else None
        if isinstance(child, DictConfig) and isinstance(reference, DictConfig) and len(reference):
            unknown += _take_out(child, reference, f"{key}.", added)
    return unknown


def _dataclass_fields(node: DictConfig) -> set[str]:
    """Fields of the dataclass that veRL builds from a node; some have no line in veRL's YAML files."""
    from hydra.utils import get_class

    target = OmegaConf.to_container(node, resolve=False).get("_target_")  # type: ignore[union-attr]
    try:
        found = get_class(str(target)) if target else None
    except Exception:  # Hydra raises whatever an import raises; what cannot be built is reported elsewhere
        return set()
    return {field.name for field in fields(found)} if is_dataclass(found) else set()


def _finding(key: str, names: list[str]) -> Finding:
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.75)
    hint = f"did you mean {close[0]}?" if close else "remove it"
    if _read_by_verl(key.rpartition(".")[2]):
        hint = hint if close else "check where it belongs"
        return warning(key, f"{key} is not among veRL's defaults, though its code asks for a key of this name; {hint}")
    reason = f"{key} is a key that neither veRL nor this package has"
    return error(key, f"{reason}; {hint} (on the command line +{key}=... adds it on purpose)")


@cache
def _read_by_verl(name: str) -> bool:
    """Whether veRL's code reads an option of this name that may be left out, as in ``config.get("name")``."""
    spec = importlib.util.find_spec("verl")
    asked = re.compile(rf"\.get\(\s*[\"']{re.escape(name)}[\"']")
    roots = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    return any(asked.search(path.read_text(errors="replace")) for root in roots for path in Path(root).rglob("*.py"))
