"""Find secrets, which would be recorded with a run and printed in messages: in addresses, and by the name of a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import unquote

# What the userinfo of an address can hold is wider than what a parser of URLs splits: people paste passwords as they are.
# A port is digits up to the end of the host; a user alone, as in ssh://git@host, is not secret, but is a token over HTTP.
_PORT = r"\d*(?:[/?#\s]|[,;.)\]}'\"]*(?:\s|$))"
_PLACE = re.compile(
    # One slash is left of two where a Path was made of an address, and an address may have no scheme.
    r"(?P<slashes>(?<=[a-z0-9]:)[/\\]{1,9}|(?:^|(?<=[\s'\"=,(\[{<>]))[/\\]{2,9})"
    rf"(?!\[[\da-f:.%]{{0,99}}\])[^\s/\\?#@:]{{0,2000}}:(?=\S)(?!{_PORT})(?:\S{{0,2000}}|[^@]{{0,200}})@"
    r"|(?P<scheme>(?:(?<=http:)|(?<=https:)|(?<=ws:)|(?<=wss:))[/\\]{1,9})[^\s/\\?#]{0,2000}@"
    r"|[?&;#](?P<query>[\w.%-]{1,99})=(?=[^\s&;#'\"])"
    r"|\b(?:(?:proxy-)?authorization['\"]?\s{0,9}[:=]\s{0,9}['\"]?(?:bearer|basic|token)\s{1,9}(?P<authorized>)[\w.~+/=-]{4,2000}"
    r"|bearer\s{1,9}(?P<bearer>)(?=[a-z_.~+/=-]{0,99}\d)[\w.~+/=-]{8,2000})"
    r"|(?<![\w-])(?P<header>(?:[a-z]\w{0,30}-){1,5}\w{1,30}|cookie(?=['\"]?:\s{0,9}['\"]?[\w.-]{1,99}=))['\"]?:\s{0,9}['\"]?(?=[\w.~+/=-]{4})",
    re.IGNORECASE,
)
_QUERY_VALUE, _HEADER_VALUE = re.compile(r"[^\s&;#'\"]+"), re.compile(r"[\w.~+/=-]+")
_COOKIES = re.compile(r"[\w.~+/=%-]+(?:; ?[\w.~+/=%-]+)*")  # several in one header
_LONGEST = 200  # characters of a value by which it is judged
_WORD = re.compile(r"[A-Z]{1,99}(?![a-z])|[A-Z]?[a-z]{1,99}")
_OF_ENVIRONMENT = re.compile(r"oc\.env:\s{0,9}(\w{1,200})", re.IGNORECASE)
# Words that name a secret by themselves, or two that do together; ends of words without a separator (dbpassword), as no other
# word has; words that do at the end of a name, where the value can be a secret; and those of an address. A name that ends in a
# word of a place does not have a secret, but says where one is.
_SECRET = (
    r"pass(?:words?|wd|phrase|code)|pwd|secrets?(?:key)?|credentials?|"
    r"(?:access|api|auth|bearer|csrf|hf|hub|private|refresh|session|signing|xsrf)(?:key|token)s?"
)
_STRONG = re.compile(rf"{_SECRET}|authorization|bearer|cookies?|dsn|jwt")
_ENDS_STRONG = re.compile(
    rf"(?:{_SECRET}|(?:admin|db|ftp|imap|ldap|login|mail|mongo|mysql|pg|postgres|proxy|redis|root|smtp|sql|ssh|user)pass)$"
)
_AT_THE_END = {"key", "token", "pass", "pw", "pat"}
_IN_AN_ADDRESS = {"auth", "code", "key", "otp", "sas", "session", "sig", "signature"}
# Names of data: a key alone, and one behind these words.
_COLUMNS = {"audio", "fn", "image", "prompt", "teacher", "video"}
_PLACES = {"column", "dir", "env", "field", "file", "header", "id", "name", "path", "url", "var", "variable"}
_FACTS = {"allowed", "count", "expiry", "required"}  # of a secret, such as access_token_expiry
_NO_VALUES = {"none", "null", "true", "false", "yes", "no"}
# Names of columns and classes, numbers and marks of a tokenizer, which other keys and tokens are.
_NO_SECRET = re.compile(
    r"[a-z]{1,20}(?:[_/.-][a-z]{1,20}){0,5}|[A-Z][a-z]{1,20}|[\d.,_ ]{1,12}|[<\[].{0,99}|.{0,200}\s.{0,200}", re.DOTALL
)
_REMEDY = (
    "put the secret into the environment instead: VERL_TRGRPO_SEARCH_TOKEN for search servers, HTTPS_PROXY, HF_TOKEN, "
    "WANDB_API_KEY or MLFLOW_TRACKING_PASSWORD for those services"
)


def names_secret(name: str, value: Any = "", in_address: bool = False) -> bool:
    """Return whether a name is that of a secret, by its words.

    Args:
        name: of a key of a configuration, a variable of the environment, a header or a part of a query.
        value: what it has, "" where that is not known; keys and tokens of other kinds are told by it.
        in_address: whether the name is one of a query.
    """
    words = [word.lower() for word in _WORD.findall(unquote(name))]
    if not words or words[-1] in _PLACES | _FACTS or str(value).casefold() in _NO_VALUES:
        return False
    if name == "PWD":  # a shell's directory
        return False
    if any(map(_ENDS_STRONG.search, words)) or any(map(_STRONG.fullmatch, (*words, *map("".join, pairwise(words))))):
        return True
    if name.isupper():  # a variable of the environment, which is named for one value
        return (words[-1] in _AT_THE_END or words[0] in {"key", "token"}) and not str(value).isdecimal()
    if not _COLUMNS.isdisjoint(words):
        return False
    if in_address:
        return words[-1] in _AT_THE_END | _IN_AN_ADDRESS
    return words[-1] in _AT_THE_END and words != ["key"] and not _NO_SECRET.fullmatch(str(value)[:_LONGEST])


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield beginning and end of each password, token and user in an address or a header, and what is shown in its place."""
    at = 0
    while found := _PLACE.search(text, at):
        start, at = found.span()
        if found["query"] or found["header"]:
            name, in_query = found["query"] or found["header"], bool(found["query"])
            if not names_secret(name, in_address=in_query):
                continue
            value = _QUERY_VALUE if in_query else _COOKIES if "cookie" in name.lower() else _HEADER_VALUE
            begins = value.match(text, at, at + _LONGEST)  # which says whether it is one, in bounded work
            if begins and names_secret(name, begins[0], in_address=in_query):
                whole = value.match(text, at) or begins
                yield at, whole.end(), "***"
                at = whole.end()
        elif (scheme := found.lastgroup) in ("bearer", "authorized"):
            yield found.start(scheme), at, "***"
        else:
            yield start, at, f"{found['slashes'] or found['scheme']}***@"


def has_password(value: Any) -> bool:
    """Return whether a text, or one in a list or mapping, is or contains an address or a header with a password or token."""
    if isinstance(value, Mapping):
        return any(map(has_password, [*value, *value.values()]))
    if isinstance(value, (list, tuple)):
        return any(map(has_password, value))
    return isinstance(value, str) and next(_spans(value), None) is not None


def without_passwords(text: str) -> str:
    """Return a text with ``***`` in place of each user, password and token in an address or a header."""
    parts, at = [], 0
    for start, end, shown in _spans(text):
        parts += [text[at:start], shown]
        at = end
    return "".join([*parts, text[at:]])


def password_problems(values: Mapping[str, Any]) -> list[str]:
    """Return a message for each value that has a password in an address, without the value."""
    return [_message(without_passwords(name)) for name, value in values.items() if has_password({name: value})]


def word_problems(words: Iterable[str]) -> list[str]:
    """Return the same for words of a command line, named by what stands before their first ``=``."""
    found = [(word, span[0]) for word in words if (span := next(_spans(word), None))]
    return [_message(word[:start].rpartition("=")[0].partition("=")[0] or "an argument") for word, start in found]


def line_problems(text: str, where: str) -> list[str]:
    """Return a message for the first line of a text file that has one; `where` names the file."""
    span = next(_spans(text), None)
    return [_message(f"{where}, line {text.count(chr(10), 0, span[0]) + 1},")] if span else []


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
        name, texts = key.rpartition(".")[2], value if isinstance(value, (list, tuple)) else [value]
        named = names_secret(name)
        if variables := [each for each in _OF_ENVIRONMENT.findall(str(value)) if named or names_secret(each)]:
            found.append(Secret(key, tuple(variables)))
        for each in texts:
            text = str(each).strip() if isinstance(each, (str, int)) else ""
            if text and "${" not in text and names_secret(name, each):
                found.append(Secret(key, literal=text))
    return found


def _message(name: str) -> str:
    return f"{name} has an address with a password or a key; {_REMEDY}"
