"""Compose a run's configuration as veRL's trainer will compose it. Needs neither veRL's code nor torch."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from verl_trgrpo.common.findings import InvalidInputError, raise_invalid
from verl_trgrpo.common.foreign import check_no_alias, read_foreign, real_path
from verl_trgrpo.common.secrets import password_problems, word_problems
from verl_trgrpo.common.text import nearest
from verl_trgrpo.config import OWN_CONFIGS
from verl_trgrpo.runs.hydra_messages import OF_WEIGHTS, hydra_message, option_hint
from verl_trgrpo.runs.keys import MAIN_SECTIONS, flat, selected
from verl_trgrpo.runs.overrides import added_keys, chosen_value, malformed, override_key, quoted, setting_problems
from verl_trgrpo.runs.trainers import OtherTrainer, verl_directory

DEFAULT_CONFIG = "trgrpo_trainer"

# Experiment names that do not name a run: veRL's own default, and that of this package's configurations.
_UNNAMED = ("gsm8k", "trgrpo")


@dataclass(frozen=True)
class ComposedRun:
    """A run's configuration.

    Args:
        config: as composed.
        arguments: of ``python -m verl.trainer.main_ppo`` that compose the same.
        choices: option of each configuration group, such as ``algorithm``.
        added: keys that overrides add on purpose, with a plus; groups do not count.
        trainer: that runs it; None for ``main_ppo``.
    """

    config: DictConfig
    arguments: tuple[str, ...]
    choices: Mapping[str, str] = field(default_factory=dict)
    added: frozenset[str] = frozenset()
    trainer: OtherTrainer | None = None

    @cached_property
    def defaults(self) -> DictConfig:
        """Return the configuration without the settings of the run (see :func:`defaults_of`), with which the check compares.

        A file of a job names no choices. It is compared with veRL's own defaults for its ``model_engine``.
        """
        if not self.is_job:
            found = defaults_of(self.choices)
            if self.trainer:
                found = found.copy()
                with open_dict(found):
                    found.merge_with(self.trainer.settings)
            return found
        engine = str(selected(self.config, "model_engine"))
        known = (_verl_configs() / "model_engine" / f"{engine}.yaml").is_file()
        return _defaults("ppo_trainer", (("model_engine", engine),) if known else ())

    @property
    def is_job(self) -> bool:
        """Return True if the source has no defaults list: ``--cfg job`` printed it, and overrides have lost their plus."""
        return all(group.startswith("hydra/") for group in self.choices)

    @property
    def directory(self) -> Path:
        """Return the directory of checkpoints, logs and plots."""
        return Path(self.config.trainer.default_local_dir)

    @property
    def on_cpu(self) -> bool:
        """Return True if it trains without an accelerator; a machine without a GPU may start a run on GPUs."""
        return self.config.trainer.device == "cpu"


def compose(
    source: str | Path = DEFAULT_CONFIG, overrides: Sequence[str] = (), platform: str | None = None
) -> ComposedRun:
    """Compose a recipe, or a primary configuration, with Hydra overrides.

    Where nothing else names the run, it is named after its recipe, if it has one, its algorithm, and its shaping if the
    algorithm has none of its own: the name is that of the run directory, and two algorithms must not continue each other's
    checkpoints.

    Args:
        source: a recipe file (its name ends in .yaml or has a slash), which may use the configurations of veRL, of this
            package and of its own directory; or the name of a primary configuration, such as veRL's ``ppo_trainer``.
        overrides: as on veRL's command line.
        platform: option of the group ``platform`` unless the overrides choose one.

    Raises:
        InvalidInputError: a file, group or key does not exist, or the syntax is wrong.
    """
    overrides = list(overrides)
    raise_invalid(word_problems(overrides))
    recipe = _recipe_file(source)
    options = ["hydra.searchpath=[pkg://verl.trainer.config]"] if recipe else []
    chosen = [f"platform={platform}"] if platform and not chosen_value(overrides, "platform") else []
    try:
        config, choices = _compose(source, recipe, [*chosen, *overrides])
    except InvalidInputError as error:
        # Stock configurations do not have the group in their defaults.
        if not chosen or "Could not override 'platform'" not in str(error.__cause__):
            raise
        chosen = [f"+platform={platform}"]
        config, choices = _compose(source, recipe, [*chosen, *overrides])
    raise_invalid(password_problems(_values(config)))
    naming = []
    # A file without a defaults list is what ``--cfg job`` printed of a run that starts by other means.
    is_job = all(group.startswith("hydra/") for group in choices)
    unnamed = not is_job and OmegaConf.select(config, "trainer.experiment_name") in _UNNAMED
    name = "-".join(filter(None, (recipe.stem if recipe else "", choices.get("algorithm"), _added_shaping(choices))))
    if unnamed and name and not chosen_value(overrides, "trainer.experiment_name"):
        # What refers to the name is resolved when it is read, so there is no need to compose again.
        config.trainer.experiment_name = name
        naming = [f"trainer.experiment_name={quoted(name)}"]
    primary = (
        [f"--config-path={recipe.parent}", "--config-name", recipe.stem] if recipe else ["--config-name", str(source)]
    )
    arguments = (*primary, *options, *chosen, *naming, *overrides)
    return ComposedRun(config, arguments, choices, frozenset(added_keys(overrides) - set(choices)))


def compose_part(source: str | Path, overrides: Sequence[str]) -> tuple[ComposedRun, dict[str, str]]:
    """Compose a run without the overrides that are refused; return also the message about each by the key that it begins with.

    Raises:
        InvalidInputError: the rest cannot be composed either.
    """
    try:
        return compose(source, overrides), {}
    except InvalidInputError as error:
        named = [message.lstrip("+~") for message in error.messages]
        keys = {word: override_key(word) for word in overrides}
        left = [
            word for word, key in keys.items() if not any(re.match(rf"{re.escape(key)}[.:=]", each) for each in named)
        ]
        try:
            part = compose(source, left)
        except InvalidInputError:
            raise error from None
        return part, {re.split(r"[:=]", each)[0]: message for each, message in zip(named, error.messages, strict=True)}


def _values(config: DictConfig) -> dict[str, Any]:
    """Return all values of a configuration, those that refer to others or to the environment as they are resolved.

    What this package's own resolvers return is not text, and takes an import of torch: it stays as it is written.
    """
    written = flat(config)
    refers = {key for key, value in written.items() if "${" in str(value) and "${verl_trgrpo_" not in str(value)}
    return {key: resolved(config, key, value) if key in refers else value for key, value in written.items()}


def _added_shaping(choices: Mapping[str, str]) -> str | None:
    """Return the shaping of a run whose algorithm has none of its own."""
    algorithm, shaping = choices.get("algorithm"), choices.get("shaping")
    if not shaping or not _found(OWN_CONFIGS, [f"algorithm/{algorithm}"]):
        return None
    own = algorithm_settings(str(algorithm))
    return None if "actor_rollout_ref.actor.policy_loss.shaping.name" in own else shaping


def defaults_of(choices: Mapping[str, str]) -> DictConfig:
    """Return the configuration of veRL and this package with these options of their groups, without any other setting."""
    files = {group: f"{group.partition('@')[0]}/{choice}" for group, choice in choices.items()}
    found = _found(_verl_configs(), [file for file in files.values() if ".." not in file])
    chosen = sorted(group for group, file in files.items() if file in found)
    return _defaults(DEFAULT_CONFIG, tuple((group, choices[group]) for group in chosen))


def verl_defaults() -> DictConfig:
    """Return veRL's ``ppo_trainer`` without this package."""
    return _defaults("ppo_trainer", ())


@cache
def _defaults(source: str, choices: tuple[tuple[str, str], ...]) -> DictConfig:
    return _compose(source, None, [f"{group}={choice}" for group, choice in choices])[0]


@cache
def algorithm_settings(algorithm: str, *options: str) -> Mapping[str, Any]:
    """Return the dotted keys that an option of the group ``algorithm`` sets, and their values as they are written.

    With `options` of the groups that it brings along, such as ``shaping=power``, in the place of its own.
    """
    config = _hydra_compose(OWN_CONFIGS, f"algorithm/{algorithm}", list(options))
    with open_dict(config):
        del config["hydra"]
    return flat(config)


def changed_values(config: DictConfig, defaults: DictConfig) -> dict[str, Any]:
    """Return the dotted keys, with their values, that differ from their defaults both as written and as resolved.

    A key that only refers to something that differs is not a difference of its own.
    """
    written, changed = flat(defaults), {}
    for key, own in flat(config).items():
        if key in written and own == written[key]:
            continue
        value = resolved(config, key, own)
        if key not in written or value != resolved(defaults, key, written[key]):
            changed[key] = value
    return changed


def loggers_of(config: DictConfig) -> list[str]:
    """Return the loggers of a run, which may be given as a list or as one name."""
    logger = selected(config, "trainer.logger") or []
    return list(logger) if isinstance(logger, (list, ListConfig)) else [logger]


def resolved(config: DictConfig, key: str, otherwise: Any = None) -> Any:
    """Return the value of a dotted key in plain Python types; `otherwise` if it cannot be resolved, None if it does not exist."""
    try:
        value = OmegaConf.select(config, key, throw_on_missing=False)
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException:
        return otherwise


def run_overrides(train: Path, test: Path, model: str | Path, run_dir: Path, name: str, seed: int) -> list[str]:
    """Return the overrides that give a run its data files, model, directory, name and seed of data order and sampling."""
    return [
        f"data.train_files={quoted(train)}",
        f"data.val_files={quoted(test)}",
        f"actor_rollout_ref.model.path={quoted(model)}",
        f"trainer.default_local_dir={quoted(run_dir)}",
        f"trainer.experiment_name={name}",
        f"data.seed={seed}",
        f"actor_rollout_ref.rollout.seed={seed}",
    ]


def _yaml_error(error: YAMLError) -> str:
    """Return file, line and reason of a syntax error in one line."""
    mark = getattr(error, "problem_mark", None)
    place = f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}" if mark else "a configuration file"
    reason = " ".join(str(getattr(error, "problem", None) or error).split())
    return f"{place}: is not YAML ({reason}); check that line and the one before: indentation, quotes, brackets, colons"


def _recipe_file(source: str | Path) -> Path | None:
    """Return the file of a recipe; None for the name of a configuration."""
    recipe = Path(source)
    if not isinstance(source, Path) and recipe.suffix not in (".yaml", ".yml") and "/" not in source:
        return None
    if recipe.suffix != ".yaml" or not recipe.is_file():
        raise InvalidInputError([f"recipe {source}: does not exist, or does not end in .yaml; give a recipe file"])
    check_no_alias(read_foreign(real_path(recipe)), recipe)  # Hydra opens it by its path
    return recipe.resolve()


def _verl_configs() -> Path:
    # By its directory: as a package Hydra would import it, and with it all of veRL.
    return verl_directory() / "trainer" / "config"


def _compose(source: str | Path, recipe: Path | None, overrides: list[str]) -> tuple[DictConfig, dict[str, Any]]:
    """Return the configuration, and what Hydra chose from each group, in a defaults list or in an override."""
    verl_configs = _verl_configs()
    folder = recipe.parent if recipe else verl_configs
    search = [f"hydra.searchpath=[{quoted(f'file://{verl_configs}')}]"] if recipe else []
    config = _hydra_compose(folder, recipe.stem if recipe else str(source), [*search, *overrides])
    deleted = {override[1:].partition("=")[0] for override in overrides if override.startswith("~")}
    if lacking := [name for name in MAIN_SECTIONS if name not in config and name not in deleted]:
        message = (
            f"{source}: is not a whole configuration, it lacks {', '.join(lacking)}; begin its defaults list with "
            "ppo_trainer, or give a recipe that includes it"
        )
        raise InvalidInputError([message])
    choices = dict(config.hydra.runtime.choices)
    with open_dict(config):
        del config["hydra"]
    return config, choices


def _hydra_compose(folder: Path, name: str, overrides: list[str]) -> DictConfig:
    """Compose with Hydra's own section.

    Raises:
        InvalidInputError: for anything that Hydra refuses, all of it, a line each; its cause is Hydra's error.
    """
    composed = None if malformed(overrides) else _tried(folder, name, overrides)  # Hydra takes some malformed ones
    if isinstance(composed, DictConfig):
        return composed
    raise InvalidInputError(_problems(folder, name, overrides, composed)) from composed


@contextmanager
def _hydra(folder: Path) -> Iterator[Any]:
    """Prepare Hydra for the configurations of a folder; yield their loader, which knows the groups."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(folder), version_base=None), warnings.catch_warnings():
        # Of a defaults list without _self_: then a recipe's own keys count last, as in every Hydra of today.
        warnings.filterwarnings("ignore", ".*Defaults list is missing", UserWarning)
        yield GlobalHydra.instance().config_loader()


def _found(folder: Path, files: Collection[str]) -> set[str]:
    """Return those files, without their suffix, that Hydra finds in a folder or where this and other plugins have theirs."""
    with _hydra(folder) as loader:
        return {file for file in files if loader.repository.config_exists(file)}


def _tried(folder: Path, name: str, overrides: Sequence[str]) -> DictConfig | Exception:
    """Return what Hydra composes, or why it refuses."""
    import hydra
    from hydra.errors import HydraException

    try:
        with _hydra(folder):
            return hydra.compose(name, overrides=[*overrides], return_hydra_config=True)
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError, OSError, RecursionError) as error:
        return error


def _problems(folder: Path, name: str, overrides: Sequence[str], first: Exception | None = None) -> list[str]:
    """Return a message for each thing that Hydra refuses: words, groups, then keys; it stops at the `first` itself."""
    messages = malformed(overrides)
    search, groups, values = _sorted(folder, [word for word in overrides if word not in messages])
    # The key of a word whose value cannot be read may be unknown, too.
    nulls = [f"{word.partition('=')[0]}=null" for word in messages if re.match(r"[+]*[A-Za-z_]\w*(\.\w+)+=", word)]
    values += [word for word in nulls if not malformed([word])]
    config = _tried(folder, name, search)
    if not isinstance(config, DictConfig):
        return [*messages.values(), _message(folder, name, config)]
    found = list(messages.values())
    for choice, options in groups:
        tried = _tried(folder, name, [*search, choice.input_line])
        if isinstance(tried, DictConfig):
            search, config = [*search, choice.input_line], tried
        elif not (found and choice.key_or_group in OF_WEIGHTS):  # which the missing algorithm would have brought along
            found += _choice_problems(folder, name, search, config, choice, options)
    found += dict.fromkeys(setting_problems(config, values, group_names(config.hydra.runtime.choices)))
    return found or ([_message(folder, name, first)] if first else [])


def _choice_problems(
    folder: Path, name: str, search: list[str], there: DictConfig, choice: Any, options: Sequence[str]
) -> list[str]:
    """Return why Hydra refuses a choice of a group after the words `search`, which compose `there`; it takes what these name."""
    key, group, value = choice.get_key_element(), choice.key_or_group, choice.value()
    named, given = key.lstrip("+"), choice.input_line.removeprefix(key)
    if not options:
        return [f"{named}: the group does not exist; leave this word out"]
    asked = [] if choice.is_delete() else value if isinstance(value, list) else [value]
    unknown = [one for one in asked if isinstance(one, str) and one not in options]
    found = [f"{named}={one}: does not exist; {option_hint(group, one, options)}" for one in unknown]
    if unknown:  # whether the group can be chosen at all is found out with an option that exists
        given = f"={nearest(unknown[0], options) or options[0]}"
    refused = _tried(folder, name, [*search, f"{key}{given}"])
    if isinstance(refused, DictConfig):
        return found
    if "Could not override" not in str(refused):
        return [*found, _message(folder, name, refused)]
    if group in OF_WEIGHTS:
        word = f"{'' if 'algorithm' in there.hydra.runtime.choices else '+'}algorithm=tr_grpo"
        return [
            *found,
            f"{named}: has no effect, this algorithm has no token weights; choose one that has, such as {word}",
        ]
    meant = str(refused).partition("mean to override ")[2].partition("?")[0].removeprefix("one of ")
    for place in [f"+{named}", *filter(None, meant.split(", "))]:
        config = _tried(folder, name, [*search, f"{place}{given}"])
        # What adds a section to veRL's is read by nothing.
        if isinstance(config, DictConfig) and config.keys() == there.keys():
            return [*found, f"{named}: is not in this configuration; write {place}{given}"]
    return [f"{named}: is not in this configuration, and veRL reads it nowhere; leave this word out"]


def _sorted(folder: Path, words: Sequence[str]) -> tuple[list[str], list[tuple[Any, list[str]]], list[str]]:
    """Return the words of search paths; the choices of groups, each with the options that exist; and the words of values."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_overrides([*words])
    search, groups, values = [], [], []
    with _hydra(folder) as loader:
        for word, each in zip(words, parsed, strict=True):
            options = loader.get_group_options(each.key_or_group)
            if each.key_or_group == "hydra.searchpath":
                search.append(word)
            elif each.package or (options and not isinstance(each.value(), dict)):
                groups.append((each, options))
            else:
                values.append(word)
    return search, groups, values


def group_names(choices: Collection[str]) -> list[str]:
    """Return the groups of a configuration with these choices, and with a plus those that can be added to it."""
    chosen = [group for group in choices if ".." not in group]
    names = [path.name for path in OWN_CONFIGS.iterdir() if path.is_dir() and path.name not in OF_WEIGHTS]
    return [*chosen, *(f"+{name}" for name in names if name not in chosen)]


def _configurations(folder: Path) -> list[str]:
    """Return the names of the configurations and groups that Hydra finds from a folder on."""
    with _hydra(folder) as loader:
        return loader.get_group_options("", results_filter=None)


def _message(folder: Path, name: str, error: BaseException) -> str:
    """Return an error of Hydra in one line."""
    if isinstance(error, RecursionError):
        return f"{name}: includes itself through its defaults list; remove that entry"
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, YAMLError):
        cause = cause.__cause__
    if isinstance(cause, YAMLError):
        return _yaml_error(cause)
    configurations = [*_configurations(folder), *_configurations(_verl_configs())]
    reason = " ".join(str(error).split())
    return hydra_message(str(error), configurations) or f"{name}: cannot be composed ({reason})"
