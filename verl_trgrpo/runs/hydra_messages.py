"""What Hydra says about a configuration, in one line with the remedy; where its own advice leads nowhere, what does."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_trgrpo.common.text import nearest_key

_SHAPING = "actor_rollout_ref.actor.policy_loss.shaping"
# What stands beside a shaping's parameters.
_SHAPING_ITSELF = ("_target_", "name", "reverse")
# Options by other names.
_ALIASES = {("platform", "gpu"): "accelerator", ("platform", "cuda"): "accelerator"}


@dataclass(frozen=True)
class Surroundings:
    """Where a message came up.

    Args:
        own: the directory of this package's configurations.
        others: other directories with configurations: veRL's, the recipe's.
        values_without: dotted keys and values of the configuration as its groups make it, without a key that is not there.
    """

    own: Path
    others: tuple[Path, ...]
    values_without: Callable[[str], Mapping[str, Any]]

    def configurations(self) -> list[str]:
        """Names that may stand in a defaults list."""
        return [path.stem for folder in (self.own, *self.others) for path in folder.glob("*.yaml")]

    def groups(self) -> list[str]:
        """Names of groups, of which a defaults list takes an option."""
        return [path.name for folder in (self.own, *self.others) for path in folder.iterdir() if path.is_dir()]


def in_plain_words(message: str, around: Surroundings) -> str:
    """Hydra's message, or a better one."""
    for pattern, answer in _ANSWERS.items():
        if found := re.search(pattern, message):
            return answer(found, around)
    return message


def file_hint(name: str) -> str:
    """What to do about a recipe that Hydra cannot take, because of its name; "" where there is no such file."""
    file = Path(name)
    meant = file.with_suffix(".yaml") if file.suffix == ".yml" else Path(f"{name}.yaml")
    if file.is_file():
        return f"rename the file to {meant}"
    return f"did you mean {meant}?" if meant.is_file() else ""


def _close(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one; "" where none is."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), "")


def _no_weights(found: re.Match[str], around: Surroundings) -> str:
    return _nothing_to_weigh(found["group"])


def _nothing_to_weigh(setting: str) -> str:
    return (
        f"{setting}= has nothing to act on: this algorithm has no token weights; choose one that has, such as tr_grpo"
    )


def _no_key(found: re.Match[str], around: Surroundings) -> str:
    key = found["key"]
    values = around.values_without(key)
    if key.startswith(f"{_SHAPING}."):
        shaping = values.get(f"{_SHAPING}.name")
        if shaping is None:
            return _nothing_to_weigh(key)
        if "." not in shaping:  # a function of the user's own may have parameters that no file names
            names = [name.removeprefix(f"{_SHAPING}.") for name in values if name.startswith(f"{_SHAPING}.")]
            takes = ", ".join(name for name in names if name not in _SHAPING_ITSELF)
            parameter = key.removeprefix(f"{_SHAPING}.")
            return f"{key}: shaping={shaping} has no parameter {parameter}; it takes {takes or 'none'}"
    groups = [path.name for path in around.own.iterdir() if path.is_dir()]
    meant = nearest_key(key, [name for name in (*groups, *values) if name != key])
    hint = f"did you mean {meant}? " if meant else ""
    return f"{key} is a key that neither veRL nor this package has; {hint}+{key}=... adds it on purpose"


def _no_option(found: re.Match[str], around: Surroundings) -> str:
    group, option, known = found["group"], found["option"], found["known"].split()
    close = _ALIASES.get((group, option)) or _close(option, known)
    hint = f"did you mean {close}?" if close else f"there are {', '.join(known)}"
    return f"{group}={option} does not exist; {hint}"


def _no_group(found: re.Match[str], around: Surroundings) -> str:
    close = _close(found["group"], around.groups())
    hint = f"did you mean {close}: {found['option']}?" if close else "correct it"
    return f"the defaults list of {found['file']} names the group {found['group']}, which does not exist; {hint}"


def _no_part(found: re.Match[str], around: Surroundings) -> str:
    close = _close(found["name"], around.configurations())
    hint = f"did you mean {close}?" if close else "correct it"
    return f"the defaults list of {found['file']} names {found['name']}, a configuration that does not exist; {hint}"


def _no_list(found: re.Match[str], around: Surroundings) -> str:
    return "the defaults of a recipe are a list; write defaults: [ppo_trainer, _self_]"


def _no_text(found: re.Match[str], around: Surroundings) -> str:
    return (
        "a group of configurations was given something that is no name: critic, data, reward and other groups of veRL take "
        "the name of an option; give keys instead, such as critic.enable=false"
    )


def _no_primary(found: re.Match[str], around: Surroundings) -> str:
    own = sorted(path.stem for path in around.own.glob("*.yaml"))
    close = _close(found["name"], [*own, "ppo_trainer"])
    known = f"there are ppo_trainer (veRL's), {', '.join(own)}, and recipe files"
    hint = file_hint(found["name"]) or (f"did you mean {close}?" if close else known)
    return f"there is no configuration {found['name']}; {hint}"


def _no_value(found: re.Match[str], around: Surroundings) -> str:
    word = found["word"]
    if word in around.configurations():
        place = f"validate takes one, in the first place, and train takes it as --config-name {word}"
        return f"{word} is a configuration, not an override; {place}"
    return f"{word} is not an override: it gives no value; write {word}=..."


def _several_values(found: re.Match[str], around: Surroundings) -> str:
    key, values = found["key"], found["values"]
    return f"{key}={values} gives several values without saying that they are a list; write {key}=[{values}]"


# The first that is found in a message counts.
_ANSWERS: dict[str, Callable[[re.Match[str], Surroundings], str]] = {
    r"^Could not override '(?P<group>shaping|normalize)'": _no_weights,
    r"Could not override '(?P<key>[^']+)'\.\s+To append to your config": _no_key,
    r"Could not find '(?P<group>[^']+)/(?P<option>[^'/]+)'\s+Available options in '[^']+':(?P<known>(?:\n\t.*)+)": _no_option,
    r"In '(?P<file>[^']+)': Could not find '(?P<group>[^']+)/(?P<option>[^'/]+)'": _no_group,
    r"In '(?P<file>[^']+)': Could not load '(?P<name>[^']+)'": _no_part,
    r"defaults must be a list": _no_list,
    r"Config group override must be a string or a list": _no_text,
    r"Cannot find primary config '(?P<name>[^']+)'": _no_primary,
    r"Error parsing override '(?P<word>[^']+)'\s+missing EQUAL": _no_value,
    r"Ambiguous value for argument '(?P<key>[^'=]+)=(?P<values>[^']+)'": _several_values,
}
