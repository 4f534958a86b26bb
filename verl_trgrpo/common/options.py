"""Options as dataclasses that check their values, command lines from their fields (by tyro), and exit codes of programs."""

from __future__ import annotations

import dataclasses
import errno
import functools
import itertools
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_type_hints

from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.common.secrets import without_passwords
from verl_trgrpo.common.text import for_terminal, typeable

Given = TypeVar("Given")


@dataclasses.dataclass(frozen=True)
class Options:
    """Check values on construction: a number is in the interval of its annotation, such as ``Annotated[float, "(0, 1]"]``, and
    is whole where that says ``int``; a field annotated with ``bool`` is a boolean.

    None is fine where the annotation allows it. A class that needs more checks defines `problems`; its ``where`` is put
    before each message.

    Raises:
        InvalidInputError: all problems at once.
    """

    where: ClassVar[str] = ""

    def __post_init__(self) -> None:
        ranges, messages = {}, []
        for name, (interval, kinds) in _annotations(type(self)).items():  # type: ignore[arg-type]  # a class is hashable
            value = getattr(self, name)
            if value is None and type(None) in kinds:
                continue
            if bool in kinds and not isinstance(value, bool):
                messages.append(f"{name}={value!r} is not a boolean; give true or false")
            elif interval and int in kinds and isinstance(value, float):
                messages.append(f"{name}={value!r} is not a whole number; give one in {interval}")
            elif interval:
                ranges[name] = interval
        messages = [*range_errors(vars(self), ranges), *messages, *self.problems()]
        raise_invalid([self.where + message for message in messages])

    def problems(self) -> list[str]:
        """Return a message for each problem that the annotations do not name."""
        return []


@functools.cache
def _annotations(options_class: type) -> dict[str, tuple[str, tuple[Any, ...]]]:
    """Return the interval of each field, an empty string where it has none, and the types that its annotation allows."""
    found = {}
    for name, hint in get_type_hints(options_class, include_extras=True).items():
        interval, bare = getattr(hint, "__metadata__", ("",))[0], getattr(hint, "__origin__", hint)
        found[name] = interval if isinstance(interval, str) else "", get_args(bare) or (bare,)
    return found


def parse_options(
    options_class: type[Given], prog: str, description: str = "", argv: Sequence[str] | None = None
) -> Given:
    """Parse command-line words, those of this process if None, into a dataclass: ``val_per_set`` is ``--val-per-set``.

    Help texts are the lines under ``Args:`` in the docstrings of the class and its bases, and `description`, or else the
    docstring of the class. A field annotated with ``tyro.conf.Positional`` is not a flag. A tuple takes several words, so
    positional words follow it only after ``--``. A bool, whose default is False, takes none.

    Raises:
        ValueError: raised by the class for invalid values; not caught here.
        SystemExit: with 0 after ``--help``, with 2 after tyro's message about words that cannot be parsed.
    """
    import tyro  # takes a tenth of a second

    names = [field.name for field in dataclasses.fields(options_class)]  # type: ignore[arg-type]
    words = sys.argv[1:] if argv is None else argv
    if "overrides" in names:
        raise_invalid(_confused(names, words))
    # tyro prints a ValueError of a class in a box, but passes on what a function raises. That function needs a parameter.
    has_fields = bool(dataclasses.fields(options_class))  # type: ignore[arg-type]
    # An annotation that is a string belongs to the module of its class, which is not that of a class that inherits the field.
    hints = get_type_hints(options_class, include_extras=True)
    if words and words[0] and not words[0].startswith("-") and "Positional" not in str(hints):
        takes = [f"--{name.replace('_', '-')} {shlex.quote(words[0])}" for name in names if "Path" in str(hints[name])]
        raise_invalid([f"{words[0]}: has no option before it; write {' or '.join(takes)}"] if takes else [])
    for field in dataclasses.fields(options_class):  # type: ignore[arg-type]
        hints[field.name] = Annotated[hints[field.name], tyro.conf.arg(help_behavior_hint=_default_text(field))]
    options_class.__init__.__annotations__.update(hints)  # type: ignore[misc]
    return tyro.cli(
        functools.partial(options_class) if has_fields else options_class,
        prog=typeable(prog),
        description=typeable(description or options_class.__doc__ or ""),
        args=argv,
        config=(tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone, tyro.conf.PositionalMetavarFromFieldName),
    )


def _default_text(field: dataclasses.Field[Any]) -> str:
    """Return what the help says of a field's default: as a user types it."""
    if field.default is dataclasses.MISSING:
        return "(required)"
    empty = field.default is None or field.default is False
    words = field.default if isinstance(field.default, tuple) else () if empty else (field.default,)
    shown = " ".join(map(str, words))
    return f"(default: {shown})" if shown else "(optional)"


def _confused(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return a message for each word that makes an option of an override, or an override of an option."""
    messages = []
    for word, after in itertools.zip_longest(words, words[1:], fillvalue=""):
        key, equals, value = word.lstrip("-").partition("=")
        is_option, is_name = word.startswith("--") and bool(key), key.replace("-", "_") in names
        if is_option and not is_name and key != "help":
            value = value if equals else after or "VALUE"
            hint = f"give {value} as the first word" if key == "config-name" else f"write the override {key}={value}"
            messages.append(f"{word} is not an option of this command; {hint}")
        elif equals and not is_option and is_name:
            messages.append(
                f"{word} is an option, not an override; write --{key.replace('_', '-')} {value}".removesuffix(" true")
            )
    return messages


def exit_code(program: Callable[[], int]) -> int:
    """Run `program` and return its exit code; print one message for an error that ends it.

    Returns 1 for a RuntimeError or where memory runs out, 2 for invalid input (ValueError, OSError), 130 after Ctrl-C, 141 if
    stdout was closed, and the code of a SystemExit, with which tyro ends after ``--help`` (0) and after words that cannot be
    parsed (2).
    """
    try:
        code = program()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as interrupt:
        sys.stderr.write(for_terminal(f"\ninterrupted{'; ' if str(interrupt) else ''}{interrupt}\n"))
        return 130
    except BrokenPipeError:
        # `| head` has read enough. Python must not flush the rest at exit; 141 is what a shell reports after SIGPIPE.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        return end.code or 0
    except MemoryError:
        sys.stderr.write("error: memory ran out; close other programs, or give the command less to read\n")
        return 1
    except (ValueError, OSError, RuntimeError) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "; free some space, or write to another disk, and give the same command again" if full else ""
        sys.stderr.write(for_terminal(f"error: {without_passwords(str(error))}{remedy}\n"))
        return 1 if isinstance(error, RuntimeError) else 2


def command_line(command: str, options: Any) -> list[str]:
    """Return the words with which `command` gets these `options`; options with their default value are left out."""
    words = shlex.split(command)
    for field in dataclasses.fields(options):
        value, flag = getattr(options, field.name), f"--{field.name.replace('_', '-')}"
        if value == field.default or value is None or value is False:
            continue
        words.append(flag)
        if value is not True:
            words += map(str, value if isinstance(value, tuple) else [value])
    return words
