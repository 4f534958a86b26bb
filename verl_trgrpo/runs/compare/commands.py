"""The command line of one run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from verl_trgrpo.runs.compare.study import Study


class Inputs(NamedTuple):
    """What all runs of a study start from: train and test prompts (parquet) and the model."""

    train: Path
    test: Path
    model: str


def run_command(study: Study, inputs: Inputs, arm: str, seed: int, run_dir: Path) -> list[str]:
    """Return the words of the command that trains one arm with one seed in `run_dir`, or goes on with it."""
    settings = {**study.settings, **study.arms[arm]}
    make = _minimal if study.trainer == "minimal" else _verl
    return make(study, inputs, settings, seed, run_dir)


def _minimal(study: Study, inputs: Inputs, settings: Mapping[str, Any], seed: int, run_dir: Path) -> list[str]:
    flags = {
        "train": inputs.train,
        "test": inputs.test,
        "model": inputs.model,
        "out": run_dir,
        "seed": seed,
        **settings,
    }
    words = [word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return [sys.executable, str(study.script), *words, "--resume"]


def _verl(study: Study, inputs: Inputs, settings: Mapping[str, Any], seed: int, run_dir: Path) -> list[str]:
    from verl_trgrpo.runs.launch.configuration import quoted, seed_overrides

    overrides = [
        f"data.train_files={quoted(inputs.train)}",
        f"data.val_files={quoted(inputs.test)}",
        f"actor_rollout_ref.model.path={quoted(inputs.model)}",
        f"trainer.default_local_dir={quoted(run_dir)}",
        f"trainer.experiment_name={run_dir.parent.name}-{run_dir.name}",
        *seed_overrides(seed),
        *(f"{name}={value}" for name, value in settings.items()),
    ]
    main = [sys.executable, "-m", "verl_trgrpo.cli.main"]
    return [*main, "train", "--config-name", study.config_name, *overrides]
