"""Rewrite Hydra's error messages as one line with a working fix."""

from __future__ import annotations

import re
from collections.abc import Collection

from verl_trgrpo.common.import_path import EXTERNAL_MODULES
from verl_trgrpo.common.text import did_you_mean

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
# Methods that have no word, by their letters and digits, and what docs/related_methods.md says about them.
WITHOUT_WORD = {
    **dict.fromkeys(("LUSPO", "F-GRPO", "WAPO"), "is a recipe of docs/write_your_own.md"),
    "VESPO": "is a loss of your own, not a weight (docs/write_your_own.md)",
    "CW-GRPO": "weighs search rounds by a judge's score, a column per token that no reward here writes",
    "PPO": "is veRL's own default, with a critic: a run of ppo_trainer without algorithm=",
    "ReMax": "needs the reward of a greedy response, which veRL's v1 trainer does not compute",
    "S-GRPO": "is algorithm=random_subset here, in its manner",
    "ETPO": "learns Q-values by soft Bellman updates of single tokens; it is not a policy loss",
    "ESPO": "is a method for diffusion language models",
    "Training-Free GRPO": "changes the prompt, not the model",
    "THR": "needs a weight for the tokens of right answers that its public text does not give",
    "NTHR": "needs equations that its public text does not give in readable form",
    "T-SPMO": "gives a token credit by the responses of its group that share the text before it, which a loss does not see",
    "IcePop": (
        "is veRL's own mask: algorithm.rollout_correction.rollout_rs=token_k1 "
        "algorithm.rollout_correction.rollout_rs_threshold=0.5_2.0"
    ),
}
# Options by other names.
_ALIASES = {"gpu": "accelerator", "cuda": "accelerator"}


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


_WITHOUT_WORD = {_plain(name): reason for name, reason in WITHOUT_WORD.items()}


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
    if group == "algorithm" and (reason := _WITHOUT_WORD.get(_plain(option))):
        return f"this method {reason}; docs/related_methods.md has more"
    more = _OWN_SHAPING.format(option=option) if group == "shaping" else ""
    return did_you_mean(_ALIASES.get(option, option), known) + more


def _hint(names: dict[str, str], configurations: Collection[str]) -> str:
    if "known" in names:
        return option_hint(names["group"], names["option"], names["known"].split())
    if "name" in names:
        hint = did_you_mean(names["name"].partition("/")[0], configurations, "")
        return f"{hint} " if hint else ""
    return ""
