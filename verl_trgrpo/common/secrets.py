"""Find passwords in addresses, which would be recorded with a run and printed in messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# User and password, or a token in their place, in front of the host; a user alone, as in ssh://git@host, is not secret.
_PASSWORD = re.compile(r"(?<=://)(?:[^\s/?#@:]*:(?!\d*/)[^\s?#]*|(?<=http://)[^\s/?#]*|(?<=https://)[^\s/?#]*)@")
_REMEDY = (
    "leave it out, and give it in the environment: VERL_TRGRPO_SEARCH_TOKEN for search servers, HTTPS_PROXY, HF_TOKEN, "
    "WANDB_API_KEY or MLFLOW_TRACKING_PASSWORD for those services"
)


def has_password(value: Any) -> bool:
    """Return whether a text, or one in a list or mapping, is or contains an address with a password."""
    if isinstance(value, Mapping):
        return any(map(has_password, [*value, *value.values()]))
    if isinstance(value, (list, tuple)):
        return any(map(has_password, value))
    return isinstance(value, str) and bool(_PASSWORD.search(value))


def without_passwords(text: str) -> str:
    """Return a text with ``***`` in place of each password in an address."""
    return _PASSWORD.sub("***@", text)


def password_problems(values: Mapping[str, Any]) -> list[str]:
    """Return a message for each value that has a password in an address, without the value."""
    return [
        f"{name} has an address with a password; {_REMEDY}" for name, value in values.items() if has_password(value)
    ]


def word_problems(words: Iterable[str]) -> list[str]:
    """Return the same for words of a command line, named by what stands before their ``=``."""
    options = [word.partition("://")[0].rpartition("=")[0] or "an argument" for word in words if has_password(word)]
    return [f"{name} has an address with a password; {_REMEDY}" for name in options]
