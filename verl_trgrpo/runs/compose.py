"""A run's configuration, composed as veRL's trainer will compose it. Needs neither veRL's code nor torch."""

from __future__ import annotations

import importlib.util
import types
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import compress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from yaml import YAMLError, safe_load

from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.runs.hydra_messages import Surroundings, file_hint, in_plain_words

DEFAULT_CONFIG = "trgrpo_trainer"

# What every configuration of a training has.
_SECTIONS = ("actor_rollout_ref", "algorithm", "critic", "data", "reward", "trainer")

# This package's configurations.
OWN_CONFIGS = Path(__file__).parent.parent / "config"

# Experiment names that say nothing about a run: veRL's own default, and that of this package's configurations.
_UNNAMED = ("gsm8k", "trgrpo")


@dataclass(frozen=True)
class ComposedRun:
    """A run's configuration.

    Args:
        config: as composed.
        arguments: of ``python -m verl.trainer.main_ppo`` that compose the same.
        choices: option of each configuration group, such as ``algorithm``.
        added: keys that overrides add on purpose, with a plus; groups do not count.
    """

    config: DictConfig
    arguments: tuple[str, ...]
    choices: Mapping[str, str] = field(default_factory=dict)
    added: frozenset[str] = frozenset()

    @property
    def directory(self) -> Path:
        """Where checkpoints, logs and plots go."""
        return Path(self.config.trainer.default_local_dir)

    @property
    def on_cpu(self) -> bool:
        """Whether it trains without an accelerator: a head node without a GPU may start a run on GPUs."""
        return self.config.trainer.device == "cpu"


def compose(
    source: str | Path = DEFAULT_CONFIG, overrides: Sequence[str] = (), platform: str | None = None
) -> ComposedRun:
    """Compose a recipe, or a primary configuration, with Hydra overrides.

    Where nothing else names the run, it is named after its recipe, if it has one, and its algorithm: the name is that of the
    run directory, and two algorithms must not continue each other's checkpoints.

    Args:
        source: a recipe file (its name ends in .yaml or has a slash), which may use the configurations of veRL, of this
            package and of its own directory; or the name of a primary configuration, such as veRL's ``ppo_trainer``.
        overrides: as on veRL's command line.
        platform: option of the group ``platform`` unless the overrides choose one.

    Raises:
        InvalidInputError: for a file, a group, a key or syntax that is not there or wrong.
    """
    overrides = list(overrides)
    recipe = _recipe_file(source)
    options = ["hydra.searchpath=[pkg://verl.trainer.config]"] if recipe else []
    chosen = [f"platform={platform}"] if platform and not chosen_value(overrides, "platform") else []
    try:
        config, choices = _compose(source, recipe, [*chosen, *overrides])
    except InvalidInputError as error:
        # Stock configurations do not have the group in their defaults.
        if not chosen or "Could not override 'platform'" not in str(error):
            raise
        chosen = [f"+platform={platform}"]
        config, choices = _compose(source, recipe, [*chosen, *overrides])
    naming = []
    unnamed = OmegaConf.select(config, "trainer.experiment_name") in _UNNAMED
    name = "-".join(filter(None, (recipe.stem if recipe else "", choices.get("algorithm"))))
    if unnamed and name and not chosen_value(overrides, "trainer.experiment_name"):
        # What refers to the name is resolved when it is read, so there is no need to compose again.
        config.trainer.experiment_name = name
        naming = [f"trainer.experiment_name={quoted(name)}"]
    primary = (
        [f"--config-path={recipe.parent}", "--config-name", recipe.stem] if recipe else ["--config-name", str(source)]
    )
    arguments = (*primary, *options, *chosen, *naming, *overrides)
    return ComposedRun(config, arguments, choices, frozenset(added_keys(overrides) - set(choices)))


def defaults_of(choices: Mapping[str, str]) -> DictConfig:
    """What veRL and this package have by themselves, with these options of groups; groups of others are left out."""
    return _defaults(DEFAULT_CONFIG, _choices_in(choices, _verl_configs(), OWN_CONFIGS))


def verl_defaults(choices: Mapping[str, str] = types.MappingProxyType({})) -> DictConfig:
    """What veRL's ``ppo_trainer`` has without this package, with these options of veRL's groups."""
    return _defaults("ppo_trainer", _choices_in(choices, _verl_configs()))


def _choices_in(choices: Mapping[str, str], *roots: Path) -> tuple[tuple[str, str], ...]:
    """Those of the options that are files below one of these directories."""
    files = {group: f"{group.partition('@')[0]}/{choice}.yaml" for group, choice in choices.items()}
    found = [
        group for group, file in files.items() if ".." not in file and any((root / file).is_file() for root in roots)
    ]
    return tuple((group, choices[group]) for group in sorted(found))


@cache
def _defaults(source: str, choices: tuple[tuple[str, str], ...]) -> DictConfig:
    return _compose(source, None, [f"{group}={choice}" for group, choice in choices])[0]


def quoted(value: object) -> str:
    """``value`` as a Hydra override takes it literally, whatever characters a path has."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(str(value), Quote.single).with_quotes()


def seed_overrides(seed: int) -> list[str]:
    """Overrides that give one seed to the order of prompts, the rollout engine and the order within a batch."""
    keys = ("data.seed", "actor_rollout_ref.rollout.seed", "actor_rollout_ref.actor.data_loader_seed")
    return [f"{key}={seed}" for key in keys]


def chosen_value(overrides: Sequence[str], key: str) -> str | None:
    """The value that the overrides give to ``key``, or None; the last one wins, as in Hydra."""
    pairs = [override.lstrip("+").split("=", 1) for override in overrides if "=" in override]
    return next((pair[1] for pair in reversed(pairs) if pair[0] == key), None)


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted keys and leaf values of a configuration (unresolved) or of a dictionary; lists count as leaves."""
    container: Any = OmegaConf.to_container(config, resolve=False) if OmegaConf.is_config(config) else config
    leaves: dict[str, Any] = {}
    for key, value in container.items():
        name = f"{prefix}{key}"
        leaves.update(flat(value, f"{name}.") if isinstance(value, dict) and value else {name: value})
    return leaves


def added_keys(overrides: Sequence[str]) -> set[str]:
    """Keys of single values that overrides add with a plus: ``+trainer={mine: 1}`` adds trainer.mine."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    added = OverridesParser.create().parse_overrides([override for override in overrides if override.startswith("+")])
    return {key for override in added for key in flat({override.key_or_group: override.value()})}


def _yaml_problem(error: YAMLError) -> str:
    """File, line and reason of a syntax error, in one line."""
    mark = getattr(error, "problem_mark", None)
    place = f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}" if mark else "a configuration file"
    reason = " ".join(str(getattr(error, "problem", None) or error).split())
    return f"{place}: not YAML ({reason}); look at that line and the one before: indentation, quotes, brackets, colons"


def _recipe_file(source: str | Path) -> Path | None:
    recipe = Path(source)
    if not isinstance(source, Path) and recipe.suffix not in (".yaml", ".yml") and "/" not in source:
        return None
    if recipe.suffix != ".yaml":
        hint = file_hint(str(source)) or "give a recipe file"
        raise InvalidInputError([f"recipe {recipe} does not end in .yaml, as Hydra wants it; {hint}"])
    if not recipe.is_file():
        raise InvalidInputError([f"recipe {recipe} does not exist; the project's own are in recipes/TASK/MODEL.yaml"])
    if problem := _content_problem(recipe):
        raise InvalidInputError([f"recipe {recipe} {problem}"])
    return recipe.resolve()


def _content_problem(recipe: Path) -> str:
    """Why a file can be no recipe, whatever its defaults are; syntax errors are left to Hydra, which names the place."""
    try:
        content = safe_load(recipe.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        return f"cannot be read as text ({error}); save it as UTF-8, readable for you"
    except YAMLError:
        return ""
    if content is None:
        return "is empty; a recipe is keys with values, and its defaults list begins with ppo_trainer"
    return "" if isinstance(content, dict) else f"is a {type(content).__name__}; a recipe is keys with values"


def _verl_configs() -> Path:
    # By its directory: as a package Hydra would import it, and with it all of veRL.
    found = importlib.util.find_spec("verl")
    if found is None or not found.submodule_search_locations:
        raise InvalidInputError(['veRL is not installed; pip install "verl>=0.9,<0.10"'])
    return Path(found.submodule_search_locations[0]) / "trainer" / "config"


def _compose(source: str | Path, recipe: Path | None, overrides: list[str]) -> tuple[DictConfig, dict[str, Any]]:
    """The configuration, and what Hydra chose from each group, be it in a defaults list or in an override."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    verl_configs = _verl_configs()
    folder = recipe.parent if recipe else verl_configs
    search = [f"hydra.searchpath=[{quoted(f'file://{verl_configs}')}]"] if recipe else []
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(folder), version_base=None), warnings.catch_warnings():
            # Of a defaults list without _self_: then a recipe's own keys count last, as in every Hydra of today.
            warnings.filterwarnings("ignore", ".*Defaults list is missing", UserWarning)
            name = recipe.stem if recipe else str(source)
            config = hydra.compose(name, overrides=[*search, *overrides], return_hydra_config=True)
    except YAMLError as error:
        raise InvalidInputError([_yaml_problem(error)]) from error
    except RecursionError as error:
        raise InvalidInputError([f"{source} includes itself through its defaults list; take that out"]) from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, YAMLError):
            cause = cause.__cause__
        around = Surroundings(
            OWN_CONFIGS, (folder, verl_configs), lambda key: _values_without(key, source, recipe, overrides)
        )
        problem = _yaml_problem(cause) if cause else in_plain_words(str(error), around)
        raise InvalidInputError([problem]) from error
    taken_out = {override[1:].partition("=")[0] for override in overrides if override.startswith("~")}
    if lacking := [name for name in _SECTIONS if name not in config and name not in taken_out]:
        message = (
            f"{source} is not a whole configuration: it lacks {', '.join(lacking)}. A recipe's defaults list begins with "
            "ppo_trainer; parts such as base.yaml are for recipes to include"
        )
        raise InvalidInputError([message])
    choices = dict(config.hydra.runtime.choices)
    with open_dict(config):
        del config["hydra"]
    return config, choices


def _values_without(key: str, source: str | Path, recipe: Path | None, overrides: list[str]) -> dict[str, Any]:
    """What there is to set in the groups that overrides choose, be the overrides of `key` and of other keys right or wrong."""
    names = [override.partition("=")[0] for override in overrides]
    groups = [name != key and ("." not in name or "@" in name) for name in names]
    if all(groups):
        return flat(defaults_of({}))
    try:
        return flat(_compose(source, recipe, list(compress(overrides, groups)))[0])
    except InvalidInputError:
        return flat(defaults_of({}))
