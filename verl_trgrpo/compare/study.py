"""Read a study, that is, a comparison of arms over seeds, from a YAML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.demos import TaskName

TRAINERS = ("minimal", "verl")


@dataclass
class Study:
    """Arms times seeds, everything else equal.

    Args:
        title: title of the tables.
        arms: settings of each arm by name, in addition to `settings`.
        seeds: seeds of data order and sampling, the same for every arm; differences are paired by seed.
        baseline: arm that the others are compared with.
        primary: arm whose final accuracy is the primary outcome; its tests are not corrected, all others are.
        margin: largest difference in mean final accuracy that does not matter; if given, equivalence is tested.
        trainer: ``minimal`` (`script` with one ``--flag value`` per setting) or ``verl`` (``verl-trgrpo train`` with Hydra
            overrides).
        script: the single-file trainer, relative to the study's file.
        config_name: primary configuration, for ``verl``.
        puzzles: puzzles to generate: counts by number of people for ``train`` and ``test``, and ``seed``; or
        data: Parquet files ``train`` and ``test``, relative to the study's file; or
        small_lm: ``word_problems`` or ``puzzles``: data and model of ``verl-trgrpo small-lm``.
        warm_start: options of ``warm_start_script puzzles`` to train a model for the study; or
        model: directory or hub name; empty for the tiny model that ships with the package.
        warm_start_script: ``recipes/demos/warm_start.py``, relative to the study's file.
        settings: settings of every run.
        accuracy: validation metric; empty for the mean over data sources.
        hypotheses: expectations written before the runs, shown below the tables.
    """

    title: str = MISSING
    arms: dict[str, dict[str, Any]] = MISSING
    seeds: list[int] = MISSING
    baseline: str = MISSING
    primary: str = ""
    margin: float | None = None
    trainer: str = "minimal"
    script: str = ""
    config_name: str = "trgrpo_trainer"
    puzzles: dict[str, Any] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    small_lm: str = ""
    warm_start: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    warm_start_script: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    accuracy: str = ""
    hypotheses: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = ", ".join(self.arms)
        messages = [
            f"{role}={name!r}: not an arm; choose one of {known}"
            for role, name in (("baseline", self.baseline), ("primary", self.primary or self.baseline))
            if name not in self.arms
        ]
        if self.primary == self.baseline:
            messages.append(f"primary={self.primary!r}: the same arm as the baseline; choose another one")
        if self.margin is not None and not self.margin > 0:
            messages.append(f"margin={self.margin}: not above 0; give a difference of accuracies, such as 0.02")
        if not self.seeds or min(self.seeds) < 0 or len({*self.seeds}) < len(self.seeds):
            messages.append(f"seeds={self.seeds}: not distinct integers from 0; give each seed once")
        if self.trainer not in TRAINERS:
            messages.append(f"trainer={self.trainer!r}: unknown trainer; choose one of {', '.join(TRAINERS)}")
        if self.trainer == "minimal" and not Path(self.script).is_file():
            messages.append(f"script={self.script!r}: not a file; name recipes/minimal/train.py")
        if self.small_lm and self.small_lm not in (tasks := get_args(TaskName)):
            messages.append(f"small_lm={self.small_lm!r}: unknown task; choose one of {', '.join(tasks)}")
        if [bool(self.puzzles), bool(self.data), bool(self.small_lm)].count(True) != 1:
            messages.append("give exactly one of puzzles (to generate), data (Parquet files) and small_lm")
        elif not self.small_lm and not {"train", "test"} <= {*self.puzzles, *self.data}:
            messages.append("puzzles and data need train and test")
        if [bool(self.warm_start), bool(self.model), bool(self.small_lm)].count(True) > 1:
            messages.append("give at most one of warm_start (to train), model and small_lm")
        if self.warm_start and not Path(self.warm_start_script).is_file():
            messages.append(
                f"warm_start_script={self.warm_start_script!r}: not a file; name recipes/demos/warm_start.py"
            )
        raise_invalid(messages)


def read_study(path: Path, overrides: Sequence[str] = (), arms: Sequence[str] = ()) -> Study:
    """Read a study from a YAML file.

    Args:
        path: YAML file; paths in it are relative to its directory.
        overrides: ``key=value`` as in OmegaConf, such as ``settings.steps=4`` or ``seeds=[0,1]``.
        arms: arms to keep; empty for all.

    Raises:
        ValueError: the file is not a study, or has unknown keys or wrong values, all of which are reported.
    """
    if not path.is_file():
        raise ValueError(f"{path} is not a file; name a study, such as recipes/compare/kk_tiny.yaml")
    try:
        loaded: Any = OmegaConf.merge(OmegaConf.structured(Study), OmegaConf.load(path))
        for name in ("script", "warm_start_script"):
            if loaded[name]:
                loaded[name] = str((path.parent / loaded[name]).resolve())
        for name, file in loaded.data.items():
            loaded.data[name] = str((path.parent / file).resolve())
        study: Any = OmegaConf.to_object(OmegaConf.merge(loaded, OmegaConf.from_dotlist(list(overrides))))
    except (YAMLError, OmegaConfBaseException) as error:
        raise ValueError(f"{path} is not a study: {error}") from None
    if unknown := [arm for arm in arms if arm not in study.arms]:
        raise ValueError(f"{path} has no arm {', '.join(unknown)}; it has {', '.join(study.arms)}")
    puzzles = {key: _by_size(value) for key, value in study.puzzles.items()}
    return replace(study, puzzles=puzzles, arms={arm: study.arms[arm] for arm in arms or study.arms})


def run_directory(out: Path, arm: str, seed: int) -> Path:
    """Return the directory of a run: ``OUT/runs/<arm>/seed-<seed>``."""
    return out / "runs" / arm / f"seed-{seed}"


def _by_size(counts: Any) -> Any:
    """Convert keys, numbers of people, to integers: overrides give strings. The last one wins."""
    return {int(size): count for size, count in counts.items()} if isinstance(counts, dict) else counts
