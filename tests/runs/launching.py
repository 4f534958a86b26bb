"""Runs for tests of the launcher: composed once, changed by key, never checked."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from omegaconf import OmegaConf

from verl_trgrpo.runs.compose import ComposedRun, compose


@cache
def _base() -> ComposedRun:
    return compose(platform="cpu")


def composed(run_dir: Path, **changes: object) -> ComposedRun:
    """Return a run in `run_dir`; dots in keys are written as two underscores."""
    config = _base().config.copy()
    for key, value in {"trainer__default_local_dir": str(run_dir), **changes}.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    return replace(_base(), config=config)
