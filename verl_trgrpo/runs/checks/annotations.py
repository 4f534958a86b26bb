"""The types that veRL's dataclasses give to their fields, also to those whose default is null."""

from __future__ import annotations

import pydoc
import types
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from omegaconf import DictConfig

_WORDS: dict[Any, str] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list", tuple: "a list",
    dict: "a section", types.NoneType: "null",
}  # fmt: skip


def field_types(config: DictConfig) -> dict[str, Any]:
    """Dotted keys with the annotation of the dataclass that veRL builds there; keys without one are left out."""
    found: dict[str, Any] = {}

    def visit(node: DictConfig, prefix: str, implied: Any) -> None:
        hints = _hints(target_of(node) or implied)
        name: Any
        for name in node:
            key, child, hint = f"{prefix}{name}", node._get_node(name), hints.get(str(name))
            if hint is not None:
                found[key] = hint
            if isinstance(child, DictConfig) and not (
                child._is_none() or child._is_missing() or child._is_interpolation()
            ):
                visit(child, f"{key}.", next(filter(is_dataclass, (hint, *get_args(hint))), None))

    visit(config, "", None)
    return found


def target_of(node: DictConfig) -> Any:
    """The class or function that a section names in its ``_target_``; None where there is none that can be imported."""
    target = node._get_node("_target_", validate_access=False)
    return _located(str(target)) if target is not None else None


@cache
def _located(name: str) -> Any:
    try:
        return pydoc.locate(name)
    except Exception:  # an import raises anything; what cannot be built is reported elsewhere
        return None


def described(hint: Any) -> str:
    """What an annotation takes, in words; nothing where it takes what cannot be told from here."""
    if get_origin(hint) in (Union, types.UnionType):
        words = [described(part) for part in get_args(hint)]
        return " or ".join(words) if all(words) else ""
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) is tuple:
        return f"a list of {len(get_args(hint))} values, each {described(get_args(hint)[0])}"
    return _WORDS.get(dict if is_dataclass(hint) else get_origin(hint) or hint, "")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says; a whole number is a number, too."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if kind is Literal:
        return value in parts
    if kind is bool:
        return value in (True, False)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    if kind is str:
        return isinstance(value, str)
    if kind in (list, tuple):
        wanted = parts[0] if parts else Any
        count = len(parts) if kind is tuple and parts and parts[-1] is not Ellipsis else None
        return (
            isinstance(value, list)
            and count in (None, len(value))
            and all(not described(wanted) or fits(item, wanted) for item in value)
        )
    if kind is dict or is_dataclass(kind):
        return isinstance(value, DictConfig)
    return value is None


@cache
def _hints(found: Any) -> dict[str, Any]:
    try:
        return get_type_hints(found) if is_dataclass(found) else {}
    except Exception:  # an annotation that cannot be evaluated here says nothing
        return {}
