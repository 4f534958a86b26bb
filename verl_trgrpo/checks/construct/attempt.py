"""Try to build one thing, and say in its owner's words why that fails."""

from __future__ import annotations

import contextlib
import errno
import io
import re
import traceback
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import as_plain_yaml, first_line
from verl_trgrpo.runs.keys import selected

# What the rights of the sandbox refuse.
_REFUSED = {errno.EPERM, errno.EACCES, errno.EAGAIN, errno.EFBIG}
_USAGE = re.compile(r"^.*: error: (?P<reason>.*)", re.DOTALL | re.MULTILINE)


class UsageError(ValueError):
    """What a parser of command lines says before it ends the process."""


def attempt(key: str, value: Any, build: Callable[[], object], owner: str, fix: str) -> list[Finding]:
    """Build something, and return why it cannot be built: an error, or "not checked" where this machine is the reason.

    Args:
        key: the setting that is tried.
        value: its value.
        build: what the owner does with the value.
        owner: who does it.
        fix: what to do where the owner refuses the value.
    """
    error = raised_by(build)
    return [refusal_finding(key, value, error, owner, fix)] if error else []


def refusal_finding(key: str, value: Any, error: Exception, owner: str, fix: str) -> Finding:
    """Return the finding of an error, as `attempt` takes its arguments."""
    reason, value = reason_of(error), OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    if is_of_machine(error):
        return Finding.not_checked(key, f"{key}={as_plain_yaml(value)}: cannot be tried here ({reason})")
    return Finding.error(key, f"{key}={as_plain_yaml(value)}: {owner} refuses the value ({reason}); {fix}")


def raised_by(build: Callable[[], object]) -> Exception | None:
    """Return what `build` raises, None if it raises nothing."""
    try:
        built_quietly(build)
    except MemoryError:
        raise
    except Exception as error:
        return error
    return None


def culprits(names: Sequence[str], build: Callable[[Collection[str]], object]) -> dict[str, Exception]:
    """Return the options that make something fail which is built of all of them, and the errors.

    Nothing if it does not fail, or fails without any of them, too. They are those without which nothing fails, and of these
    such as the error names. Where several are wrong, they are those that fail alone.

    Args:
        names: of the options.
        build: what their owner makes of some of them.
    """
    error = raised_by(partial(build, names))
    if error is None or raised_by(partial(build, [])):
        return {}
    without = [name for name in names if raised_by(partial(build, [each for each in names if each != name])) is None]
    if not without:
        alone = {name: found for name in names if (found := raised_by(partial(build, [name])))}
        return alone or dict.fromkeys(names, error)
    named = [name for name in without if re.search(rf"\b{re.escape(name)}\b", reason_of(error))]
    return dict.fromkeys(named or without, error)


def refused_options(
    section: str,
    given: Mapping[str, Any],
    build: Callable[[Collection[str]], object],
    owner: str,
    otherwise: str = "",
) -> list[Finding]:
    """Return a finding for each of the `culprits` among the options of a section; `otherwise` is another remedy."""
    found = culprits([*given], build) if given else {}
    keys = {name: f"{section}.{name}" for name in found}
    return [
        refusal_finding(keys[name], given[name], error, owner, f"correct {keys[name]}{otherwise}")
        for name, error in found.items()
    ]


def with_options(section: DictConfig, key: str, names: Collection[str]) -> DictConfig:
    """Return a section that has no other options below a key than these."""
    section = section.copy()
    options = {name: value for name, value in (selected(section, key) or {}).items() if name in names}
    OmegaConf.update(section, key, options, merge=False)
    return section


def built_quietly(build: Callable[[], object]) -> object:
    """Return what `build` returns; whatever it prints is dropped, and the end of a process is an exception.

    Raises:
        UsageError: a parser of command lines refuses an argument.
    """
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return build()
        except SystemExit as end:
            found = _USAGE.search(said.getvalue())
            raise UsageError(found["reason"].strip() if found else f"ends the process with {end.code}") from end


def reason_of(error: BaseException) -> str:
    """Return the message of an error in one line: of pydantic's, the parts that were wrong; the source of a bare assertion.

    Of an error that Hydra reports, it is that of its cause.
    """
    while isinstance(error, HydraException) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, ValidationError):
        parts = [(".".join(map(str, each["loc"])), each["msg"]) for each in error.errors()]
        return "; ".join(f"{place}: {reason}" if place else reason for place, reason in parts)
    if not str(error) and (frames := traceback.extract_tb(error.__traceback__)) and frames[-1].line:
        return frames[-1].line
    return first_line(error)


def is_of_machine(error: BaseException) -> bool:
    """Return True for an error that says nothing about the setting.

    A package is missing, the process may not do what is needed, or vLLM is built for another device than the run's.
    """
    while error:
        device = any("/vllm/platforms/" in frame.filename for frame in traceback.extract_tb(error.__traceback__))
        if isinstance(error, ImportError) or device or (isinstance(error, OSError) and error.errno in _REFUSED):
            return True
        if isinstance(error, RuntimeError) and "start new thread" in str(error):
            return True
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return False
