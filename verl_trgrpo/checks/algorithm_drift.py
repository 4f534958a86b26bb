"""Check that a run still is the algorithm that it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import as_plain_yaml
from verl_trgrpo.config import OWN_CONFIGS
from verl_trgrpo.runs.compose import algorithm_settings, flat, resolved, verl_defaults
from verl_trgrpo.runs.keys import LOSS
from verl_trgrpo.verl_plugin.loss_names import WEIGHTED

# The algorithms that others are made from.
_BASES = ("grpo", "tr_grpo")
# Beginnings of keys that an algorithm's file sets and leaves open: a default of this project, not the algorithm's point.
_OPEN = {
    "tr_grpo": (f"{LOSS}.placement", f"{LOSS}.prob_source", f"{LOSS}.kl"),
    # Any shaping goes with them.
    **dict.fromkeys(("aspo", "lopti"), (f"{LOSS}.shaping.",)),
}


def drift_findings(view: RunView) -> list[Finding]:
    """Warn about settings that make an algorithm another one."""
    config, algorithm = view.config, view.choices.get("algorithm")
    if not algorithm or not _file_of(algorithm).is_file():
        return []
    points, findings = set(_points(algorithm)), []
    for key, written in algorithm_settings(algorithm).items():
        value, meant = resolved(config, key), _meant(config, key, written)
        same_loss = key == f"{LOSS}.loss_mode" and WEIGHTED.get(str(value)) == meant  # of a loss with token weights
        if value == meant or same_loss or key.startswith(_OPEN.get(algorithm, ())):
            continue
        bases = [base for base in _BASES if base != algorithm and value is not None]
        like = [base for base in bases if _base_value(base, key) == value]
        if key in points or like:
            fix = f"choose algorithm={like[0]}" if like else "keep it if that is what you study"
            reason = f"algorithm={algorithm} means {as_plain_yaml(meant)}; remove it, or {fix}"
            findings.append(view.finding(key, reason, Level.WARNING))
    return findings


def _file_of(algorithm: str) -> Any:
    return OWN_CONFIGS / "algorithm" / f"{algorithm}.yaml"


def _points(algorithm: str) -> Iterator[str]:
    """Yield the keys that an algorithm's file sets, and the files that it is made from; not those of its shaping."""
    content: Any = OmegaConf.to_container(OmegaConf.load(_file_of(algorithm)))
    for base in content.pop("defaults", []):
        if isinstance(base, str) and base != "_self_":
            yield from _points(base)
    yield from (key for key in flat(content) if not key.startswith(_OPEN.get(algorithm, ())))


def _base_value(base: str, key: str) -> Any:
    settings = algorithm_settings(base)
    return settings[key] if key in settings else resolved(verl_defaults(), key)


def _meant(config: DictConfig, key: str, written: Any) -> Any:
    """Return what `written` would be in the place of a key."""
    if not (isinstance(written, str) and "${" in written):
        return written
    config = config.copy()
    OmegaConf.set_struct(config, False)
    OmegaConf.update(config, key, written, force_add=True)
    return resolved(config, key)
