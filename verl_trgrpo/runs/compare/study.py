"""What a comparison consists of, read from a YAML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.small_lm import TaskName

TRAINERS = ("minimal", "verl")


@dataclass
class Study:
    """A comparison: arms times seeds, everything else equal.

    Args:
        title: what is compared, in a few words.
        arms: settings of each arm by its name, on top of `settings`.
        seeds: of data order and sampling; every arm has the same ones. Differences are taken seed by seed.
        baseline: the arm that others are compared with.
        primary: the arm whose final accuracy against the baseline decides; its test is not corrected, all others are.
        margin: largest difference of the mean final accuracy that does not matter; with it equivalence is tested, too.
        trainer: ``minimal``: `script` with one ``--flag value`` for each setting; ``verl``: ``verl-trgrpo train`` with Hydra
            overrides.
        script: the single-file trainer; relative to the study's file.
        config_name: primary configuration, for ``verl``.
        puzzles: ``train`` and ``test``, counts by number of people, and ``seed``: puzzles to make for the study; or
        data: ``train`` and ``test``, parquet files; relative to the study's file; or
        small_lm: ``word_problems`` or ``puzzles``: data and model of ``verl-trgrpo small-lm``.
        warm_start: options of ``verl_trgrpo.tiny.puzzles.PuzzleWarmStart`` for a model of the study's own; or
        model: directory or hub name; empty for the tiny model that ships with the package.
        settings: of every run.
        accuracy: validation metric; empty for the mean over data sources.
        hypotheses: what is expected, written before the runs; shown with the result.
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
    settings: dict[str, Any] = field(default_factory=dict)
    accuracy: str = ""
    hypotheses: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = ", ".join(self.arms)
        problems = [
            f"{role} is {name!r}, which is not an arm; choose one of {known}"
            for role, name in (("baseline", self.baseline), ("primary", self.primary or self.baseline))
            if name not in self.arms
        ]
        if self.primary == self.baseline:
            problems.append(f"primary is {self.primary!r}, the baseline itself; choose another arm")
        if self.margin is not None and not self.margin > 0:
            problems.append(f"margin is {self.margin}; give a difference of accuracies above 0, such as 0.02")
        if not self.seeds or min(self.seeds) < 0 or len({*self.seeds}) < len(self.seeds):
            problems.append(f"seeds are {self.seeds}; give whole numbers from 0, each once")
        if self.trainer not in TRAINERS:
            problems.append(f"trainer is {self.trainer!r}; choose one of {', '.join(TRAINERS)}")
        if self.trainer == "minimal" and not Path(self.script).is_file():
            problems.append(f"script is {self.script!r}, which is not a file; name recipes/minimal/train.py")
        if self.small_lm and self.small_lm not in (tasks := get_args(TaskName)):
            problems.append(f"small_lm is {self.small_lm!r}; choose one of {', '.join(tasks)}")
        if [bool(self.puzzles), bool(self.data), bool(self.small_lm)].count(True) != 1:
            problems.append("give exactly one of puzzles (to be made), data (parquet files) and small_lm")
        elif not self.small_lm and not {"train", "test"} <= {*self.puzzles, *self.data}:
            problems.append("puzzles and data need train and test")
        if [bool(self.warm_start), bool(self.model), bool(self.small_lm)].count(True) > 1:
            problems.append("give at most one of warm_start (to be trained), model and small_lm")
        raise_invalid(problems)


def read_study(path: Path, overrides: Sequence[str] = (), arms: Sequence[str] = ()) -> Study:
    """Read a study from a YAML file.

    Args:
        path: the file; paths in it are relative to its directory.
        overrides: ``key=value`` in the notation of OmegaConf, such as ``settings.steps=4`` or ``seeds=[0,1]``.
        arms: keep only these; empty for all.

    Raises:
        ValueError: with all problems, unknown keys among them.
    """
    if not path.is_file():
        raise ValueError(f"{path} is not a file; name a study, such as recipes/compare/kk_tiny.yaml")
    try:
        loaded: Any = OmegaConf.merge(OmegaConf.structured(Study), OmegaConf.load(path))
        if loaded.script:
            loaded.script = str((path.parent / loaded.script).resolve())
        for name, file in loaded.data.items():
            loaded.data[name] = str((path.parent / file).resolve())
        study: Any = OmegaConf.to_object(OmegaConf.merge(loaded, OmegaConf.from_dotlist(list(overrides))))
    except (YAMLError, OmegaConfBaseException) as error:
        raise ValueError(f"{path} is not a study: {error}") from None
    if unknown := [arm for arm in arms if arm not in study.arms]:
        raise ValueError(f"{path} has no arm {', '.join(unknown)}; it has {', '.join(study.arms)}")
    puzzles = {key: _by_size(value) for key, value in study.puzzles.items()}
    return replace(study, puzzles=puzzles, arms={arm: study.arms[arm] for arm in arms or study.arms})


def _by_size(counts: Any) -> Any:
    """Numbers of people as whole numbers: overrides give them as text. The last one wins."""
    return {int(size): count for size, count in counts.items()} if isinstance(counts, dict) else counts
