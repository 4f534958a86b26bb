"""What a comparison consists of, read from a YAML file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from verl_trgrpo.common.problems import raise_problems

TRAINERS = ("minimal", "verl")
_ARM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
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
        data: ``train`` and ``test``, parquet files.
        warm_start: options of ``verl_trgrpo.tiny.puzzles.PuzzleWarmStart`` for a model of the study's own; or
        model: directory or hub name; empty for the tiny model that ships with the package.
        settings: of every run.
        accuracy: validation metric; empty for the mean over data sources.
        hypotheses: what is expected, written before the runs; shown with the result.

    Raises:
        ValueError: listing everything that is wrong.
    """

    title: str
    arms: Mapping[str, Mapping[str, Any]]
    seeds: tuple[int, ...]
    baseline: str
    primary: str = ""
    margin: float | None = None
    trainer: str = "minimal"
    script: Path | None = None
    config_name: str = "trgrpo_trainer"
    puzzles: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    warm_start: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    accuracy: str = ""
    hypotheses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        raise_problems([*self._design_problems(), *self._source_problems()])

    def _design_problems(self) -> list[str]:
        problems = []
        for name, settings in self.arms.items():
            if not _ARM_NAME.fullmatch(str(name)):
                problems.append(f"the arm {name!r} cannot be a directory's name; use letters, digits, '.', '_' and '-'")
            if not isinstance(settings, Mapping):
                problems.append(f"the settings of arm {name} are {settings!r}; write key: value lines")
        for role in ("baseline", "primary"):
            name = getattr(self, role)
            if name not in self.arms and (name or role == "baseline"):
                known = ", ".join(map(str, self.arms))
                problems.append(f"{role} is {name!r}, which is not an arm; choose one of {known}")
        if self.primary == self.baseline:
            problems.append(f"primary is {self.primary!r}, the baseline itself; choose another arm")
        if self.margin is not None and not (isinstance(self.margin, (int, float)) and self.margin > 0):
            problems.append(f"margin is {self.margin!r}; give a difference of accuracies above 0, such as 0.02")
        whole = all(isinstance(seed, int) and seed >= 0 for seed in self.seeds)
        if not self.seeds or not whole or len(set(self.seeds)) < len(self.seeds):
            problems.append(f"seeds are {list(self.seeds)}; give whole numbers from 0, each once")
        return problems

    def _source_problems(self) -> list[str]:
        problems = []
        if self.trainer not in TRAINERS:
            problems.append(f"trainer is {self.trainer!r}; choose one of {', '.join(TRAINERS)}")
        if self.trainer == "minimal" and (self.script is None or not self.script.is_file()):
            problems.append(f"script is {str(self.script)!r}, which is not a file; name recipes/minimal/train.py")
        if bool(self.puzzles) == bool(self.data):
            problems.append("give either puzzles, to be made, or data, parquet files")
        for name, source, more in (("puzzles", self.puzzles, {"seed"}), ("data", self.data, set())):
            needed = {"train", "test"}
            if source and not needed <= {*source} <= needed | more:
                problems.append(f"{name} has the keys {sorted(source)}; it takes {', '.join(sorted(needed | more))}")
        problems += [
            f"data.{name} is {path!r}, which is not a file"
            for name, path in self.data.items()
            if not Path(path).is_file()
        ]
        if self.warm_start and self.model:
            problems.append("give either a warm_start, to be trained, or a model")
        return problems


def read_study(path: Path, overrides: Sequence[str] = (), arms: Sequence[str] = ()) -> Study:
    """Read a study from a YAML file.

    Args:
        path: the file; paths in it are relative to its directory.
        overrides: ``key=value`` in the notation of OmegaConf, such as ``settings.steps=4`` or ``seeds=[0,1]``.
        arms: keep only these; empty for all.

    Raises:
        ValueError: with all problems, unknown keys among them.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    if not path.is_file():
        raise ValueError(f"{path} is not a file; name a study, such as recipes/compare/kk_tiny.yaml")
    try:
        merged = OmegaConf.merge(OmegaConf.load(path), OmegaConf.from_dotlist(list(overrides)))
        values = OmegaConf.to_container(merged, resolve=True)
    except (YAMLError, OmegaConfBaseException) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds no keys; see recipes/compare/kk_tiny.yaml")
    known = [each.name for each in fields(Study)]
    mappings = ("arms", "puzzles", "data", "settings", "warm_start")
    problems = [
        f"{path} has an unknown key {key!r}; known are {', '.join(known)}" for key in values if key not in known
    ]
    problems += [f"{path} lacks {key}" for key in ("title", "arms", "seeds", "baseline") if key not in values]
    problems += [f"{key} is {values[key]!r}; write key: value lines" for key in mappings
                 if not isinstance(values.get(key, {}), dict)]  # fmt: skip
    raise_problems(problems)
    raise_problems(
        [f"{path} has no arm {arm!r}; it has {', '.join(values['arms'])}" for arm in arms if arm not in values["arms"]]
    )
    if arms:
        values["arms"] = {arm: values["arms"][arm] for arm in arms}
    if values.get("script"):
        values["script"] = (path.parent / values["script"]).resolve()
    if "data" in values:
        values["data"] = {name: str((path.parent / file).resolve()) for name, file in values["data"].items()}
    if "puzzles" in values:
        values["puzzles"] = {key: _by_size(value) for key, value in values["puzzles"].items()}
    for name in ("seeds", "hypotheses"):
        if name in values:
            values[name] = tuple(values[name] if isinstance(values[name], list) else [values[name]])
    return Study(**{str(key): value for key, value in values.items()})


def _by_size(counts: Any) -> Any:
    """Numbers of people as whole numbers: overrides give them as text. The last one wins."""
    if not isinstance(counts, dict) or not all(str(size).isdigit() for size in counts):
        return counts
    return {int(size): count for size, count in counts.items()}
