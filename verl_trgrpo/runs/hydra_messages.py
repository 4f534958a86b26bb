"""Rewrite Hydra's error messages as one line with a working fix."""

from __future__ import annotations

import re
from collections.abc import Collection

from verl_trgrpo.common.import_path import EXTERNAL_MODULES
from verl_trgrpo.common.text import did_you_mean
from verl_trgrpo.runs.other_methods import OTHER_METHODS

# By pattern of Hydra's message; the first that is found counts. {hint} names what was probably meant.
_MESSAGES = {
    r"Could not find '(?P<group>[^']+)/(?P<option>[^'/]+)'\s+Available options in '[^']+':(?P<known>(?:\n\t.*)+)": (
        "{group}={option}: does not exist; {hint}"
    ),
    r"In '(?P<file>[^']+)': Could not (?:find|load) '(?P<name>[^']+)'": (
        "{file}: its defaults list names {name}, which does not exist; {hint}correct the name"
    ),
    r"^Could not delete '(?P<group>[^']+)'": "~{group}: is not in the defaults list; leave this word out",
    r"defaults must be a list": "defaults: must be a list, such as [ppo_trainer, _self_]",
    r"Config group override must be a string or a list": (
        "a group takes the name of an option; set its keys instead, such as critic.enable=false"
    ),
    r"Cannot find primary config '(?P<name>[^']+)'": (
        "{name}: is not a configuration; {hint}give ppo_trainer, trgrpo_trainer or a recipe file"
    ),
    r"(?P<group>\S+?)(?: appears more than once in the final defaults list|\. To override a value use)": (
        "{group}: is chosen twice; give one option of each, without the plus where it exists, and start a run for each"
    ),
}
# Groups that only algorithms with token weights have.
OF_WEIGHTS = ("shaping", "normalize")
_OWN_SHAPING = (
    "; for a shaping of your own write shaping=custom actor_rollout_ref.actor.policy_loss.shaping.name={option}, with its module "
    f"in {EXTERNAL_MODULES}"
)
# Options by other names.
_ALIASES = {"gpu": "accelerator", "cuda": "accelerator"}


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


_OTHER_METHODS = {_plain(name): method.answer for name, method in OTHER_METHODS.items()}


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


def option_hint(group: str, option: str, known: Collection[str]) -> str:
    """Return what was probably meant by an option that a group does not have."""
    if group == "algorithm" and (answer := _OTHER_METHODS.get(_plain(option))):
        return f"this method {answer}; docs/related_methods.md has more"
    more = _OWN_SHAPING.format(option=option) if group == "shaping" else ""
    return did_you_mean(_ALIASES.get(option, option), known) + more


def _hint(names: dict[str, str], configurations: Collection[str]) -> str:
    if "known" in names:
        return option_hint(names["group"], names["option"], names["known"].split())
    if "name" in names:
        hint = did_you_mean(names["name"].partition("/")[0], configurations, "")
        return f"{hint} " if hint else ""
    return ""
