"""Describe settings that have an effect only where another one allows it, and find those that a run has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import as_plain_yaml
from verl_trgrpo.runs.checks.rules import Values, filled
from verl_trgrpo.runs.compose import flat

# Keys that a message shows, at most.
_SHOWN = 4


@dataclass(frozen=True)
class Switch:
    """Settings that have an effect only where other settings allow it.

    Args:
        keys: patterns of the settings; those that differ from their defaults are reported together.
        on: returns True for values with which the settings have an effect.
        otherwise: reason and fix. ``{KEY}`` becomes ``KEY=value``.
        without: patterns of settings among `keys` that are never reported.
        off: values that ask for nothing, so that they agree with the switch.
    """

    keys: tuple[str, ...]
    on: Callable[[Values], Any]
    otherwise: str
    without: tuple[str, ...] = ("*.enable", "*.enabled")
    off: tuple[Any, ...] = ()

    def covers(self, key: str) -> bool:
        """Return True for one of the settings."""
        return _matches(key, self.keys) and not _matches(key, self.without)

    def findings(self, values: Values, changed: Mapping[str, Any]) -> list[Finding]:
        """Return a warning that names the settings that are set for nothing."""
        given = [key for key in changed if self.covers(key) and changed[key] not in self.off]
        if not given or self.on(values):
            return []
        shown = ", ".join(f"{key}={as_plain_yaml(changed[key])}" for key in given[:_SHOWN])
        more = f" and {len(given) - _SHOWN} more" if len(given) > _SHOWN else ""
        return [Finding.warning(given[0], f"{shown}{more}: {filled(self.otherwise, values)}")]


def _matches(key: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def only_with(key: str, *settings: str, value: str | None = None, off: tuple[Any, ...] = ()) -> Switch:
    """Return the switch of settings that have an effect with one value of `key`, by default true."""
    return Switch(
        settings,
        lambda v: v[key] if value is None else v[key] == value,
        f"has no effect with {{{key}}}; remove it, or set that to {value or 'true'}",
        off=off,
    )


def changed_values(config: DictConfig, defaults: DictConfig) -> dict[str, Any]:
    """Return the dotted keys, with their values, that differ from their defaults both as written and as resolved.

    A key that only refers to something that differs is not a difference of its own.
    """
    written, changed = flat(defaults), {}
    for key, own in flat(config).items():
        if key in written and own == written[key]:
            continue
        value = _resolved(config, key, own)
        if key not in written or value != _resolved(defaults, key, written[key]):
            changed[key] = value
    return changed


def _resolved(config: DictConfig, key: str, written: Any) -> Any:
    """Return a value, or what is written in its place if it cannot be resolved."""
    try:
        value = OmegaConf.select(config, key, throw_on_missing=False)
    except OmegaConfBaseException:
        return written
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
