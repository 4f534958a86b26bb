"""What the runs of a study start from, and the command line of one run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.runs.compare.study import Study


class Inputs(NamedTuple):
    """What all runs of a study start from: train and test prompts (parquet) and the model."""

    train: Path
    test: Path
    model: str


def make_inputs(study: Study, out: Path, progress: Progress = no_progress) -> Inputs:
    """Return a study's inputs; puzzles and warm start are built in `out` unless they are there.

    Raises:
        ValueError: when they cannot be built as asked.
    """
    from verl_trgrpo.tiny.puzzles import CHECKPOINT

    model = study.model or str(CHECKPOINT)
    if study.puzzles:
        from verl_trgrpo.tiny.puzzle_dataset import FILES, build_dataset

        directory = out / "data"
        build_dataset(directory, study.puzzles.get("seed", 0), study.puzzles["train"], study.puzzles["test"])
        train, test = ((directory / name).resolve() for name in FILES)
    else:
        train, test = Path(study.data["train"]), Path(study.data["test"])
    if study.warm_start:
        from verl_trgrpo.tiny.puzzles import PuzzleWarmStart
        from verl_trgrpo.tiny.warm_start import build

        build(out / "warm_start", PuzzleWarmStart(**study.warm_start), progress=progress)
        model = str((out / "warm_start").resolve())
    return Inputs(train, test, model)


def run_command(study: Study, inputs: Inputs, arm: str, seed: int, run_dir: Path) -> list[str]:
    """Return the words of the command that trains one arm with one seed in `run_dir`, or goes on with it."""
    settings = {**study.settings, **study.arms[arm]}
    if study.trainer == "minimal":
        flags = {**inputs._asdict(), "out": run_dir, "seed": seed, **settings}
        words = [word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        return [sys.executable, str(study.script), *words, "--resume"]
    from verl_trgrpo.runs.compose import quoted, seed_overrides

    overrides = [
        f"data.train_files={quoted(inputs.train)}",
        f"data.val_files={quoted(inputs.test)}",
        f"actor_rollout_ref.model.path={quoted(inputs.model)}",
        f"trainer.default_local_dir={quoted(run_dir)}",
        f"trainer.experiment_name={run_dir.parent.name}-{run_dir.name}",
        *seed_overrides(seed),
        *(f"{name}={value}" for name, value in settings.items()),
    ]
    return [sys.executable, "-m", "verl_trgrpo", "train", "--config-name", study.config_name, *overrides]
