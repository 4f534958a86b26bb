"""Prompts and model of a study: made once, in its directory, the same for all runs."""

from __future__ import annotations

from pathlib import Path

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.runs.compare.commands import Inputs
from verl_trgrpo.runs.compare.study import Study


def make_inputs(study: Study, out: Path, progress: Progress = no_progress) -> Inputs:
    """Return a study's inputs; puzzles and warm start are built in `out` unless they are there.

    Raises:
        ValueError: when they cannot be built as asked.
    """
    from verl_trgrpo.tiny.puzzles import CHECKPOINT

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

        model = out / "warm_start"
        build(model, PuzzleWarmStart(**study.warm_start), progress=progress)
        return Inputs(train, test, str(model.resolve()))
    return Inputs(train, test, study.model or str(CHECKPOINT))
