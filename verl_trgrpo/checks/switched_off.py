"""Describe settings that have an effect only where another one allows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from verl_trgrpo.checks.rules import filled
from verl_trgrpo.checks.run_data import RunData
from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import as_plain_yaml

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
    on: Callable[[RunData], Any]
    otherwise: str
    without: tuple[str, ...] = ("*.enable", "*.enabled")
    off: tuple[Any, ...] = ()

    def covers(self, key: str) -> bool:
        """Return True for one of the settings."""
        return _matches(key, self.keys) and not _matches(key, self.without)

    def findings(self, values: RunData, changed: Mapping[str, Any]) -> list[Finding]:
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
