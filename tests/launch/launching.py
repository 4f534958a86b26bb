"""Runs and checkpoints for tests of the launcher: composed once, changed by key, never checked."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from omegaconf import OmegaConf

from verl_trgrpo.runs.compose import ComposedRun, compose


@cache
def _base() -> ComposedRun:
    return compose(platform="cpu")


def composed(run_dir: Path, **changes: object) -> ComposedRun:
    """Return a run in `run_dir`; dots in keys are written as two underscores."""
    config = _base().config.copy()
    for key, value in {"trainer__default_local_dir": str(run_dir), **changes}.items():
        OmegaConf.update(config, key.replace("__", "."), value, force_add=True)
    return replace(_base(), config=config)


def save_checkpoint(
    run_dir: Path, step: int, ranks: int = 1, kinds: Sequence[str] = ("model", "optim", "extra_state"), version: int = 2
) -> Path:
    """Write a checkpoint in the layout of veRL's FSDP strategies, in veRL's order."""
    actor = run_dir / f"global_step_{step}" / "actor"
    actor.mkdir(parents=True)
    for rank in range(ranks):
        for kind in kinds:
            torch.save({"weight": torch.ones(1000)}, actor / f"{kind}_world_size_{ranks}_rank_{rank}.pt")
    (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": version, "world_size": ranks}))
    torch.save({"_num_yielded": step}, actor.parent / "data.pt")
    (run_dir / "latest_checkpointed_iteration.txt").write_text(str(step))
    return actor.parent
