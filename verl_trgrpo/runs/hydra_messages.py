"""Rewrite Hydra's error messages as one line with a working fix."""

from __future__ import annotations

import re
from collections.abc import Collection

from verl_trgrpo.common.text import did_you_mean, nearest_key
from verl_trgrpo.runs.keys import ADDED, place_of

# By pattern of Hydra's message; the first that is found counts. {hint} names what was probably meant.
_MESSAGES = {
    r"^Could not override '(?P<group>shaping|normalize)'": (
        "{group}: has no effect, this algorithm has no token weights; choose one that has, such as algorithm=tr_grpo"
    ),
    r"Could not find '(?P<group>[^']+)/(?P<option>[^'/]+)'\s+Available options in '[^']+':(?P<known>(?:\n\t.*)+)": (
        "{group}={option}: does not exist; {hint}"
    ),
    r"In '(?P<file>[^']+)': Could not (?:find|load) '(?P<name>[^']+)'": (
        "{file}: its defaults list names {name}, which does not exist; {hint}correct the name"
    ),
    r"defaults must be a list": "defaults: must be a list, such as [ppo_trainer, _self_]",
    r"Config group override must be a string or a list": (
        "a group takes the name of an option; set its keys instead, such as critic.enable=false"
    ),
    r"Cannot find primary config '(?P<name>[^']+)'": (
        "{name}: is not a configuration; {hint}give ppo_trainer, trgrpo_trainer or a recipe file"
    ),
    r"Error parsing override '(?P<word>[^']+)'\s+missing EQUAL": "{word}: is not an override; write {word}=...",
    r"Ambiguous value for argument '(?P<key>[^'=.]+)=(?P<values>[^']+)'": (
        "{key}={values}: give one value, and start a run for each"
    ),
    r"Ambiguous value for argument '(?P<key>[^'=]+)=(?P<values>[^']+)'": (
        "{key}={values}: give one value, with a run for each, or a list, {key}=[{values}]"
    ),
    r"(?P<group>\S+) appears more than once in the final defaults list": (
        "{group}: is chosen twice; give one option of each group, and start a run for each"
    ),
    r"^LexerNoViableAltException: (?P<word>\S*=~\S*)": "{word}: Hydra cannot read ~ there; write the whole path, or $HOME",
    r"^Multiple values for (?P<group>\S+)\. To override": (
        "+{group}=...: this configuration has the group already; write {group}=... without the plus"
    ),
}
# A key that is unknown to Hydra; it stops at the first one.
UNKNOWN_KEY = re.compile(r"Could not override '(?P<key>[^']+)'\.\s+To append to your config")
_OWN_SHAPING = (
    "; for a shaping of your own write shaping=custom actor_rollout_ref.actor.policy_loss.shaping.name={option}, with its module "
    "in VERL_USE_EXTERNAL_MODULES"
)
# Options by other names.
_ALIASES = {"gpu": "accelerator", "cuda": "accelerator"}


def hydra_message(message: str, configurations: Collection[str]) -> str:
    """Return Hydra's message as one line with a fix; "" for an unknown message.

    Args:
        message: of Hydra's error.
        configurations: configurations and groups that a defaults list may name.
    """
    for pattern, text in _MESSAGES.items():
        if found := re.search(pattern, message):
            return text.format(**found.groupdict(), hint=_hint(found.groupdict(), configurations))
    return ""


def unknown_key(key: str, settable: Collection[str]) -> str:
    """Return a message about an override of a key that does not exist; `settable` are those that can be overridden."""
    return f"{key}: unknown key; {_key_hint(key, settable)}(+{key}=... adds it)"


def _hint(names: dict[str, str], configurations: Collection[str]) -> str:
    if "known" in names:
        options = names["known"].split()
        more = _OWN_SHAPING.format(**names) if names["group"] == "shaping" else ""
        return did_you_mean(_ALIASES.get(names["option"], names["option"]), options) + more
    if "name" in names:
        hint = did_you_mean(names["name"].partition("/")[0], configurations, "")
        return f"{hint} " if hint else ""
    return ""


def _key_hint(key: str, settable: Collection[str]) -> str:
    if place := place_of(key, settable):
        return f"did you mean {'+' if place.startswith(ADDED) else ''}{place}? "
    if key.startswith(ADDED):
        return ""
    section = key.rpartition(".")[0]
    if meant := nearest_key(key, settable):
        return f"did you mean {meant}? "
    beside = [each.rpartition(".")[2] for each in settable if section and each.rpartition(".")[0] == section]
    return f"{section} has {', '.join(beside)} " if 0 < len(beside) <= 12 else ""
