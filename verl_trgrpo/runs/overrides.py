"""Find everything that is wrong with the overrides of a run; Hydra stops at the first problem."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_trgrpo.runs.keys import MAIN_SECTIONS, OLD_SECTIONS, flat, hint_of, moved_key, selected
from verl_trgrpo.runs.readers import has_reader

_KEY = re.compile(r"(?P<sign>\+\+|\+|~)?(?P<key>[^=]*)")
_INNER_OVERRIDE = re.compile(r"([+~]+[A-Za-z_][\w./]*|[A-Za-z_]\w*(\.\w+)+|algorithm|platform|shaping)=")
# A whole value, or the first part of a path, that a shell did not replace. Hydra takes it for text.
_SHELL_VARIABLE = re.compile(r"\$(\d|[A-Z_][A-Z0-9_]*)(?=/|$)")
_BRACKETS = {"[": "]", "{": "}", "(": ")"}


def quoted(value: object) -> str:
    """Return ``value`` quoted so that a Hydra override takes it literally, whatever characters a path has."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(str(value), Quote.single).with_quotes()


def chosen_value(overrides: Sequence[str], key: str) -> str | None:
    """Return the value that the overrides give to ``key``, or None; the last one wins, as in Hydra."""
    pairs = [override.lstrip("+").split("=", 1) for override in overrides if "=" in override]
    return next((pair[1] for pair in reversed(pairs) if pair[0] == key), None)


def added_keys(overrides: Sequence[str]) -> set[str]:
    """Return the keys of single values that overrides add with a plus: ``+trainer={mine: 1}`` adds trainer.mine."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    added = OverridesParser.create().parse_overrides([override for override in overrides if override.startswith("+")])
    return {key for override in added for key in flat({override.key_or_group: override.value()})}


def malformed(words: Sequence[str]) -> dict[str, str]:
    """Return a message for each word that is not an override of one value: the word, the reason, and what to type."""
    return {word: message for word in words if (message := _syntax_problem(word))}


def override_key(word: str) -> str:
    """Return the key that an override sets, adds or deletes."""
    return _KEY.match(word)["key"]  # type: ignore[index]  # matches every word


def _syntax_problem(word: str) -> str:
    sign, key = _KEY.match(word).group("sign", "key")  # type: ignore[union-attr]  # matches every word
    value = word.partition("=")[2]
    if not key or _parsed(f"{sign or ''}{key}=1") is None:
        plain = word.lstrip("-")
        meant = plain if plain != word and plain and not _syntax_problem(plain) else "KEY=VALUE"
        return f"{word}: has no key that Hydra can read; write {meant}"
    if "=" not in word and sign != "~":
        return f"{word}: is not an override; write {word}=..."
    if variable := _SHELL_VARIABLE.match(value):
        return f"{word}: holds the shell variable {variable[0]}, unreplaced; write its value, or leave out the single quotes"
    parsed = _parsed(word)
    if parsed is None:
        return f"{word}: {_value_problem(word.partition('=')[0], value)}"
    if not parsed.is_sweep_override():
        return ""
    choice = (
        f"or a list, {key}=[{value}]" if "." in key and re.fullmatch(r"[^()]*", value) else "and start a run for each"
    )
    return f"{word}: gives several values; give one, {choice}"


def _parsed(word: str) -> Any:
    """Return Hydra's reading of a word, or None."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(word)
    except (HydraException, ValueError):
        return None


def _value_problem(key: str, value: str) -> str:
    """Return why Hydra cannot read a value, and what to type."""
    if _INNER_OVERRIDE.match(value):
        return (
            f"the value is an override itself, as where a script takes its first word, $1, for it; write {value} into the script "
            f"as a word of its own, or write {_typed(key, value)}"
        )
    if value.startswith(("[", "{")):
        opened = "".join(char for char in re.sub(r"\"[^\"]*\"|'[^']*'", "", value) if char in "[]{}")
        while (shorter := re.sub(r"\[\]|\{\}", "", opened)) != opened:
            opened = shorter
        if opened:
            return f"the bracket {opened[0]} has no partner; write {shlex.quote(f'{key}={_closed(value)}')}"
        return "Hydra cannot read this list or mapping; put quotes around texts in it that have spaces or punctuation"
    if value.startswith("~"):
        return "Hydra cannot read ~, and a shell does not replace it there; write the whole path, or $HOME"
    return f"Hydra cannot read this value; write {_typed(key, value)}"


def _typed(key: str, value: str) -> str:
    """Return the override of a text as a shell takes it, with double quotes outside where nothing in them acts."""
    word = f"{key}={quoted(value)}"
    return shlex.quote(word) if re.search(r'["$`\\!]', word) else f'"{word}"'


def _closed(value: str) -> str:
    """Return a list or mapping with the brackets that it lacks, and without those that are too many."""
    missing: list[str] = []
    text = ""
    for char in value:
        if char in "[{":
            missing.append(_BRACKETS[char])
        elif char in "]}":
            if not missing or missing[-1] != char:
                continue
            missing.pop()
        text += char
    return text + "".join(reversed(missing))


def setting_problems(config: DictConfig, words: Sequence[str], groups: Collection[str]) -> list[str]:
    """Return a message for each override of a value that a configuration with its chosen groups refuses, as Hydra does.

    Args:
        config: composed from the configuration and its groups.
        words: well-formed overrides of values, applied one after the other.
        groups: names of configuration groups, which may have been meant.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    keys = [key for key in flat(config) if not key.startswith((*OLD_SECTIONS, "hydra.runtime", "hydra.overrides"))]
    config, messages, old, known = config.copy(), list[str](), list[str](), [*groups, *keys]
    for each in OverridesParser.create().parse_overrides([*words]):
        key = each.key_or_group
        there = selected(config, key)
        if each.is_delete():
            if there is None:
                messages.append(
                    f"~{key}: the configuration lacks this key; {_meant(config, key, known) or 'leave this word out'}"
                )
            elif not OmegaConf.is_config(there) and each.value() not in (None, "", there):
                messages.append(f"~{key}={each.value()}: its value is {there}; write ~{key}")
            continue
        value = each.value()
        if each.is_add() and there is not None and not isinstance(value, (dict, list)):
            messages.append(f"+{key}: exists already; write {key}=... without the plus")
            continue
        OmegaConf.set_struct(config, not (each.is_add() or each.is_force_add()))
        for leaf, part in flat({key: value}).items():
            theirs = leaf.partition(".")[0] not in (*MAIN_SECTIONS, *OLD_SECTIONS)  # a section that another trainer has
            if part is not None and moved_key(leaf) and not theirs:
                old.append(f"{leaf}: veRL's trainer does not read this key; {_meant(config, leaf, known)}")
            try:
                OmegaConf.update(config, leaf, part, merge=True)
            except (OmegaConfBaseException, ValueError):  # a ValueError for a name in a list
                if leaf in keys:  # Hydra's own settings have types, and it refuses a value by itself
                    continue
                read = can_be_added(config, leaf, groups) and not moved_key(leaf) and has_reader(config, leaf)
                plus = f" (+{leaf}=... adds it)" if read else ""
                meant = _meant(config, leaf, known)
                beside = "" if meant else _beside(leaf, known)
                meant = meant or ("" if plus else "no counterpart is known, leave this word out")
                messages.append(f"{leaf}: unknown key{'; ' if meant else ''}{meant}{plus}{beside}")
    refused = {message.partition(":")[0] for message in messages}
    more = [message for message in old if message.partition(":")[0] not in refused]
    return [*messages, *more] if messages else []  # alone, they are warnings and errors of the first stage of the check


def can_be_added(config: DictConfig, key: str, groups: Collection[str]) -> bool:
    """Return whether a plus can add a key that is none of the others, or of the `groups`, in another spelling."""
    node: Any = config
    for part in key.split("."):
        if node is not None and not OmegaConf.is_dict(node):
            return False
        names = {*map(str, node or ()), *(group.lstrip("+") for group in groups if node is config)}
        if part not in names:
            return "/" not in key and part.casefold() not in map(str.casefold, names)
        node = selected(node, part)
    return False


def _meant(config: DictConfig, key: str, known: Collection[str]) -> str:
    """Return what was probably meant, as it can be typed where the keys `known` can be set; "" if nothing is like it."""
    dotted, hydra_s = key.replace("/", "."), key.casefold().startswith("hydra")
    group = key.rpartition("/")[0]
    if placed := [other for other in known if other.endswith(f"@{dotted}") or other.lstrip("+") == group]:
        return f"did you mean {placed[0]}?"  # actor@actor_rollout_ref.actor
    settable = [other for other in known if other != key and "@" not in other and other.startswith("hydra") == hydra_s]
    return hint_of(dotted, settable, plus=True, reads=partial(has_reader, config))


def _beside(key: str, known: Collection[str]) -> str:
    """Return the names in the section of a key; "" where there are many."""
    section = key.rpartition(".")[0]
    names = [other.rpartition(".")[2] for other in known if section and other.rpartition(".")[0] == section]
    shown = [name for name in names if name != "_target_"]
    return f"; {section} has {', '.join(shown)}" if 0 < len(names) <= 12 else ""
