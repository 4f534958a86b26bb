"""Name the sections and keys of veRL's configuration, and where its trainer reads what older scripts set elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_trgrpo.common.text import nearest_key

ACTOR = "actor_rollout_ref.actor"
REF = "actor_rollout_ref.ref"
ROLLOUT = "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model"
MODEL_PATH = f"{MODEL}.path"
LOSS = f"{ACTOR}.policy_loss"
SHAPING = f"{LOSS}.shaping"
AGENT = f"{ROLLOUT}.agent"
CORRECTION = "algorithm.rollout_correction"
# A reward function, a model that judges, and the manager that calls them, with its options.
REWARD = "reward.custom_reward_function"
REWARD_MODEL = "reward.reward_model"
MANAGER = "reward.reward_manager"
MANAGER_OPTIONS = "reward.reward_kwargs"
OVERLONG = f"{MANAGER_OPTIONS}.overlong_buffer_cfg"
GPUS = "trainer.n_gpus_per_node"
# GPUs that share the tokens of a sequence, with FSDP; the larger one counts.
ULYSSES = (f"{ACTOR}.ulysses_sequence_parallel_size", f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size")

# Sections that veRL reads, and which its YAML files do not have: on the command line they take a plus.
ADDED = (
    MANAGER_OPTIONS, "actor_rollout_ref.actor.policy_loss.rollout_correction", "actor_rollout_ref.rollout.custom.",
)  # fmt: skip
# Sections of every configuration of a training.
MAIN_SECTIONS = ("actor_rollout_ref", "algorithm", "critic", "data", "reward", "trainer")
# Sections of old scripts: they are among veRL's defaults, but its trainer does not read them.
OLD_SECTIONS = ("custom_reward_function", "reward_model", "sandbox_fusion")

_OVERLONG = ("overlong_buffer_cfg", "overlong_buffer")


@dataclass(frozen=True)
class MovedKey:
    """What became of a key that veRL does not read.

    Args:
        place: dotted key that means the same; "" where there is none.
        why: what to know about the place, or why there is none.
    """

    place: str
    why: str = ""


# A dotted name, and one that a message proposes: set KEY=VALUE, or KEY=VALUE.
_SHORT = re.compile(
    r"(?<![\w.])[a-z]\w*(?:\.[a-z]\w*)+(?![\w(])|(?<=\b(?:set|use) )[a-z]\w*(?==)|(?<=\bor )[a-z]\w*(?==)"
)


@cache
def moved_keys() -> Mapping[str, MovedKey]:
    """Return the keys of ``moved_keys.yaml``; one that ends in ``.*`` is a section, one that begins with ``*.`` a name."""
    content = yaml.safe_load((Path(__file__).parent / "moved_keys.yaml").read_text(encoding="utf-8"))
    return {key: MovedKey(row[0] or "", *row[1:]) for rows in content.values() for key, row in rows.items()}


@cache
def _deepest_section() -> int:
    """Return the number of parts of the longest section in ``moved_keys.yaml``."""
    return max(key.count(".") for key in moved_keys() if key.endswith(".*"))


def moved_key(key: str) -> MovedKey | None:
    """Return what became of a key that veRL does not read; None where nothing is known."""
    parts, table = key.split("."), moved_keys()
    if name := next((each for each in _OVERLONG if each in parts), ""):
        place = ".".join([MANAGER_OPTIONS, _OVERLONG[0], *parts[parts.index(name) + 1 :]])
    elif parts[-1] == "max_resp_len":
        place = f"{MANAGER_OPTIONS}.max_resp_len"
    elif key in table:
        return table[key]
    else:
        heads = (".".join(parts[:length]) for length in range(min(len(parts), _deepest_section()), 0, -1))
        if not (head := next((head for head in heads if f"{head}.*" in table), "")):
            return None
        row = table[f"{head}.*"]
        return MovedKey(row.place.removesuffix(".*") + key.removeprefix(head) if row.place else "", row.why)
    return MovedKey(place) if place != key else None


def place_of(key: str, known: Collection[str] | None = None) -> str:
    """Return the dotted key that veRL reads in place of `key`; "" where it reads `key` itself, or nothing is known of it.

    With `known`, the dotted keys that exist, a place among them, or in a section that only a plus adds.
    """
    found = moved_key(key)
    place = found.place if found else ""
    exists = known is None or place.startswith(ADDED) or any(f"{each}.".startswith(f"{place}.") for each in known)
    return place if exists else ""


def hint_of(
    key: str, known: Collection[str], plus: bool = False, reads: Callable[[str], bool] = lambda place: True
) -> str:
    """Return what to write for a key that does not exist: what it has become, or the key beside it that is spelled alike.

    Args:
        key: dotted.
        known: dotted keys that exist.
        plus: a key that a section may get, and does not have, is written with a plus.
        reads: whether anything reads a key that a section may get.
    """
    if found := moved_key(key) or _foreign_name(key, known):
        if not found.place:
            return f"no counterpart, {found.why}"
        if not (place := place_of(key, known) or nearest_key(found.place, known)):
            return f"did you mean {found.place}? ({'; '.join(filter(None, (found.why, 'not in this configuration')))})"
        if place.startswith(ADDED) and not reads(place):
            return f"no counterpart, nothing in veRL reads {place}"
        there = not plus or any(f"{each}.".startswith(f"{place}.") for each in known)
        return f"did you mean {'' if there else '+'}{place}?{f' ({found.why})' if found.why else ''}"
    meant = nearest_key(key, known)
    # A key that a plus would rightly add is not taken for one elsewhere.
    elsewhere = plus and key.startswith(ADDED) and meant.rpartition(".")[0] != key.rpartition(".")[0]
    return f"did you mean {meant}?" if meant and not elsewhere else ""


def _foreign_name(key: str, known: Collection[str]) -> MovedKey | None:
    """Return the counterpart of a name that other trainers have, wherever it is written; of the critic's its own."""
    found = None if key.startswith(ADDED) else moved_keys().get(f"*.{key.rpartition('.')[2]}")
    if found and key.startswith("critic."):
        own = re.sub(r"^actor_rollout_ref\.(actor\.)?", "critic.", found.place)
        return replace(found, place=own) if own in known else found
    return found


def selected(config: Any, key: str) -> Any:
    """Return the value of a dotted key; None where it does not exist, has no value, or cannot be resolved."""
    try:
        return OmegaConf.select(config, key, throw_on_missing=False)
    except OmegaConfBaseException:
        return None


def with_whole_keys(message: str, where: str, config: DictConfig) -> str:
    """Return the message of a section's class, which names keys as its section does, with keys that can be typed.

    Args:
        message: of the class.
        where: dotted key of the section, or of a part of it.
        config: that has the keys.
    """
    parts = where.split(".")

    def whole(found: re.Match[str]) -> str:
        for length in range(len(parts), 0, -1):
            section, _, name = ".".join([*parts[:length], found[0]]).rpartition(".")
            holder = selected(config, section)
            if isinstance(holder, DictConfig) and name in holder and not isinstance(selected(holder, name), DictConfig):
                return f"{section}.{name}"
        return found[0]

    return _SHORT.sub(whole, message)


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return dotted keys and leaf values of a configuration (unresolved) or of a dictionary; lists count as leaves."""
    container: Any = OmegaConf.to_container(config, resolve=False) if OmegaConf.is_config(config) else config
    leaves: dict[str, Any] = {}
    for key, value in container.items():
        name = f"{prefix}{key}"
        leaves.update(flat(value, f"{name}.") if isinstance(value, dict) and value else {name: value})
    return leaves
