"""Read a study, that is, a comparison of arms over seeds, from a YAML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.common.foreign import load_yaml
from verl_trgrpo.common.secrets import password_problems, without_passwords, word_problems
from verl_trgrpo.runs.compose import DEFAULT_CONFIG

TRAINERS = ("script", "verl")
# In a study, its output directory.
OUT = "{out}"


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
        trainer: ``script`` (a Python file that takes one ``--flag value`` per setting) or ``verl`` (``verl-trgrpo train`` with
            Hydra overrides).
        script: the trainer's file, relative to the study's file.
        config: primary configuration, or recipe file relative to the study's file, for ``verl``.
        prepare: commands that build data or model before the first run, such as ``python make.py --out {out}``. They run one
            after the other in the working directory of the comparison; ``{out}`` is the study's output directory.
        data: Parquet files ``train`` and ``test``, relative to the study's file unless they begin with ``{out}``.
        model: hub name, or directory: one that begins with a dot is relative to the study's file; ``{out}`` as above.
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
    trainer: str = "script"
    script: str = ""
    config: str = DEFAULT_CONFIG
    prepare: list[str] = field(default_factory=list)
    data: dict[str, str] = field(default_factory=dict)
    model: str = ""
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
        if self.trainer == "script" and not Path(self.script).is_file():
            messages.append(f"script={self.script!r}: not a file; name a trainer, such as studies/trainer.py")
        if {*self.data} != {"train", "test"}:
            messages.append(f"data has {', '.join(self.data) or 'nothing'}: name train and test, Parquet files")
        if not self.model:
            messages.append("model is missing: name a directory or a model of the hub")
        raise_invalid(messages)


def read_study(path: Path, overrides: Sequence[str] = (), arms: Sequence[str] = ()) -> Study:
    """Read a study from a YAML file.

    Args:
        path: YAML file; paths in it are relative to its directory.
        overrides: ``key=value`` as in OmegaConf, such as ``settings.steps=4`` or ``seeds=[0,1]``.
        arms: arms to keep; empty for all.

    Raises:
        ValueError: the file is not a study, or has unknown keys or wrong values, all of which are reported; or an address has
            a password, which the runs would record.
    """
    if not path.is_file():
        raise ValueError(f"{path} is not a file; name a study, such as studies/comparisons/kk_tiny.yaml")
    raise_invalid(word_problems(overrides))
    try:
        loaded: Any = OmegaConf.merge(OmegaConf.structured(Study), load_yaml(path))
        if loaded.script:
            loaded.script = str((path.parent / loaded.script).resolve())
        if is_file_name(loaded.config):
            loaded.config = str((path.parent / loaded.config).resolve())
        if loaded.model.startswith("."):
            loaded.model = str((path.parent / loaded.model).resolve())
        if not OmegaConf.is_dict(loaded.data):  # a variable of the environment
            raise ValueError(f"{path}: data is not a mapping; name train and test, Parquet files")
        for name, file in loaded.data.items():
            loaded.data[name] = file if file.startswith(OUT) else str((path.parent / file).resolve())
        study: Any = OmegaConf.to_object(OmegaConf.merge(loaded, OmegaConf.from_dotlist(list(overrides))))
    except (YAMLError, OmegaConfBaseException) as error:
        raise ValueError(f"{path} is not a study: {without_passwords(str(error))}") from None
    raise_invalid(password_problems(asdict(study)))  # by way of the environment, too
    if unknown := [arm for arm in arms if arm not in study.arms]:
        raise ValueError(f"{path} has no arm {', '.join(unknown)}; it has {', '.join(study.arms)}")
    return replace(study, arms={arm: study.arms[arm] for arm in arms or study.arms})


def is_file_name(config: str) -> bool:
    """Return whether a configuration is a file's and not a primary configuration's name."""
    return config.endswith((".yaml", ".yml"))
