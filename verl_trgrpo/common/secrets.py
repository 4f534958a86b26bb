"""Find secrets, which would be recorded with a run and printed in messages: in addresses, and by the name of a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

# What the userinfo of an address can hold is wider than what a parser of URLs splits: people paste passwords as they are.
# A port is digits up to the end of the host; a user alone, as in ssh://git@host, is not secret, but is a token over HTTP.
_PORT = r"\d*(?:[/?#\s]|[,;.)\]}'\"]*(?:\s|$))"
_SECRET = re.compile(
    # One slash is left of two where a Path was made of an address, and an address may have no scheme.
    r"(?P<slashes>(?<=[a-z0-9]:)[/\\]{1,9}|(?:^|(?<=[\s'\"=,(\[{<>]))[/\\]{2,9})"
    rf"(?!\[[\da-f:.%]{{0,99}}\])[^\s/\\?#@:]{{0,2000}}:(?=\S)(?!{_PORT})(?:\S{{0,2000}}|[^@]{{0,200}})@"
    r"|(?P<scheme>(?:(?<=http:)|(?<=https:)|(?<=ws:)|(?<=wss:))[/\\]{1,9})[^\s/\\?#]{0,2000}@"
    r"|(?P<query>[?&;#](?:[\w.-]{0,99}(?:tok(?:e|%65)n|key|secret|passw(?:or)?d|pwd|signature|credentials?|jwt|session|"
    r"authorization|bearer)|sig|auth|code|pass|pw|sas|otp)=)"
    r"[^\s&;#'\"]+"
    r"|(?P<header>\b(?:authorization['\"]?\s{0,9}[:=]\s{0,9}['\"]?(?:bearer|basic|token)|bearer)\s{1,9})(?=[a-z_.~+/=-]{0,99}\d)[\w.~+/=-]{8,2000}",
    re.IGNORECASE,
)
# Names of variables are for one secret each; other names have keys and tokens that are none (data.prompt_key, pad_token).
_VARIABLE = r"\w{0,99}(?:KEY|TOKEN|SECRET|PASS)\w{0,99}"
_OF_ENVIRONMENT = re.compile(rf"oc\.env:\s{{0,9}}({_VARIABLE})", re.IGNORECASE)
_NAMES_SECRET = re.compile(
    rf"(?:.{{0,999}}\.)?(?:env_vars\.{_VARIABLE}|"
    r"(?:\w{0,99}_)?(?:(?:api|access|auth|private|secret)_?key|secret|password|passwd|credentials?)|"
    r"(?:(?:hf|hub|access|auth|api|bearer|refresh|session)_?)?token|"
    r"(?!\w{0,99}(?:pad|eos|bos|unk|sep|cls|mask|image|video|audio|start|end|stop|special|per)_token)\w{0,99}_token)",
    re.IGNORECASE,
)
_REMEDY = (
    "put the secret into the environment instead: VERL_TRGRPO_SEARCH_TOKEN for search servers, HTTPS_PROXY, HF_TOKEN, "
    "WANDB_API_KEY or MLFLOW_TRACKING_PASSWORD for those services"
)


def has_password(value: Any) -> bool:
    """Return whether a text, or one in a list or mapping, is or contains an address with a password or token."""
    if isinstance(value, Mapping):
        return any(map(has_password, [*value, *value.values()]))
    if isinstance(value, (list, tuple)):
        return any(map(has_password, value))
    return isinstance(value, str) and bool(_SECRET.search(value))


def without_passwords(text: str) -> str:
    """Return a text with ``***`` in place of each user, password and token in an address."""
    return _SECRET.sub(
        lambda found: (
            f"{front}***"
            if (front := found["query"] or found["header"])
            else f"{found['slashes'] or found['scheme']}***@"
        ),
        text,
    )


def password_problems(values: Mapping[str, Any]) -> list[str]:
    """Return a message for each value that has a password in an address, without the value."""
    return [_message(without_passwords(name)) for name, value in values.items() if has_password({name: value})]


def word_problems(words: Iterable[str]) -> list[str]:
    """Return the same for words of a command line, named by what stands before their first ``=``."""
    found = [(word, match.start()) for word in words if (match := _SECRET.search(word))]
    return [_message(word[:start].rpartition("=")[0].partition("=")[0] or "an argument") for word, start in found]


def line_problems(text: str, where: str) -> list[str]:
    """Return a message for the first line of a text file that has one; `where` names the file."""
    match = _SECRET.search(text)
    return [_message(f"{where}, line {text.count(chr(10), 0, match.start()) + 1},")] if match else []


class Secret(NamedTuple):
    """A value of a configuration that is a secret: names of variables in it, or the literal itself."""

    key: str
    variables: tuple[str, ...] = ()
    literal: str = ""

    def values(self, environment: Mapping[str, str]) -> list[str]:
        """Return what must not be shown."""
        return [value for value in (self.literal, *(environment.get(name, "") for name in self.variables)) if value]


def secrets_of(values: Mapping[str, Any]) -> list[Secret]:
    """Return the values, by key, that refer to a variable with a secret's name (``${oc.env:NAME}``) or have such a name."""
    found = []
    for key, value in values.items():
        if variables := _OF_ENVIRONMENT.findall(str(value)):
            found.append(Secret(key, tuple(variables)))
        elif isinstance(value, (str, int)) and not isinstance(value, bool) and _NAMES_SECRET.fullmatch(key):
            text = str(value).strip()
            found += [Secret(key, literal=text)] if text and "${" not in text else []
    return found


def _message(name: str) -> str:
    return f"{name} has an address with a password or a key; {_REMEDY}"
