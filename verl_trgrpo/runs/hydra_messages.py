"""Rewrite Hydra's error messages as one line with a working fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from verl_trgrpo.common.text import did_you_mean, nearest_key
from verl_trgrpo.runs.keys import ADDED, place_of

# By pattern of Hydra's message; the first that is found counts. {hint} names what was probably meant.
_MESSAGES = {
    r"^Could not override '(?P<group>shaping|normalize)'": (
        "{group}: has no effect, this algorithm has no token weights; choose one that has, such as algorithm=tr_grpo"
    ),
    r"Could not override '(?P<key>[^']+)'\.\s+To append to your config": (
        "{key}: unknown key; {hint}(+{key}=... adds it)"
    ),
    r"Could not find '(?P<group>[^']+)/(?P<option>[^'/]+)'\s+Available options in '[^']+':(?P<known>(?:\n\t.*)+)": (
        "{group}={option}: does not exist; {hint}"
    ),
    r"In '(?P<file>[^']+)': Could not (?:find|load) '(?P<name>[^']+)'": (
        "{file}: its defaults list names {name}, which does not exist; {hint}correct it"
    ),
    r"defaults must be a list": "defaults: must be a list, such as [ppo_trainer, _self_]",
    r"Config group override must be a string or a list": (
        "a group takes the name of an option; set its keys instead, such as critic.enable=false"
    ),
    r"Cannot find primary config '(?P<name>[^']+)'": (
        "{name}: is not a configuration; {hint}give ppo_trainer, trgrpo_trainer or a recipe file"
    ),
    r"Error parsing override '(?P<word>[^']+)'\s+missing EQUAL": "{word}: is not an override; write {word}=...",
    r"Ambiguous value for argument '(?P<key>[^'=]+)=(?P<values>[^']+)'": (
        "{key}={values}: several values must be a list; write {key}=[{values}]"
    ),
}
# Options by other names.
_ALIASES = {"gpu": "accelerator", "cuda": "accelerator"}


def one_line(message: str, configurations: Collection[str], settable: Callable[[], Collection[str]]) -> str:
    """Return Hydra's message as one line with a fix; "" for an unknown message.

    Args:
        message: of Hydra's error.
        configurations: configurations and groups that a defaults list may name.
        settable: returns the dotted keys that can be overridden, groups included.
    """
    for pattern, text in _MESSAGES.items():
        if found := re.search(pattern, message):
            return text.format(**found.groupdict(), hint=_hint(found.groupdict(), configurations, settable))
    return ""


def _hint(names: dict[str, str], configurations: Collection[str], settable: Callable[[], Collection[str]]) -> str:
    if "known" in names:
        options = names["known"].split()
        return did_you_mean(_ALIASES.get(names["option"], names["option"]), options)
    if "key" in names and "values" not in names:
        section, keys = names["key"].rpartition(".")[0], [key for key in settable() if key != names["key"]]
        if place := place_of(names["key"]):
            return f"did you mean {'+' if place.startswith(ADDED) else ''}{place}? "
        if names["key"].startswith(ADDED):
            return ""
        if meant := nearest_key(names["key"], keys):
            return f"did you mean {meant}? "
        beside = [key.rpartition(".")[2] for key in keys if section and key.rpartition(".")[0] == section]
        return f"{section} has {', '.join(beside)} " if 0 < len(beside) <= 12 else ""
    if "name" in names:
        hint = did_you_mean(names["name"].partition("/")[0], configurations, "")
        return f"{hint} " if hint else ""
    return ""
