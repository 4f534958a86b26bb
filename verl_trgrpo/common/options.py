"""Command-line flags from the fields of a dataclass, by tyro."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import itertools
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from verl_trgrpo.common.progress import Progress, interruptible

Options = TypeVar("Options")


def parse_options(
    options: type[Options],
    prog: str,
    description: str = "",
    argv: Sequence[str] | None = None,
    positional: Collection[str] = (),
    rest: str = "",
) -> Options:
    """Return `options` from command-line words; every field is a flag, ``val_per_set`` is ``--val-per-set``.

    What a flag means is read from the field's line under ``Args:`` in the docstrings of the class and its bases, which
    values it takes from the annotation. A tuple takes several words; a bool, whose default is False, takes none.

    Args:
        options: a dataclass.
        prog: name of the command, for its help.
        description: of the command, with line breaks; examples fit in here. Empty: the docstring of the class.
        argv: the words; those of this process if left out.
        positional: names of fields that are no flags.
        rest: name of a field that takes all other words, wherever they stand, such as Hydra overrides.

    Raises:
        ValueError: words that are no options, or whatever the class raises for values that do not fit.
        SystemExit: with 0 after ``--help``.
    """
    import tyro  # takes a tenth of a second

    hints = get_type_hints(options, include_extras=True)
    positional_mark: Any = tyro.conf.Positional
    hidden_mark: Any = tyro.conf.Suppress
    marked = {name: positional_mark[hints[name]] for name in positional}
    if rest:
        marked[rest] = hidden_mark[hints[rest]]
    # Parsed into a class without checks, whose ValueErrors tyro would catch.
    unchecked: Any = type(
        options.__name__,
        (options,),
        {
            "__doc__": options.__doc__,
            "__post_init__": lambda self: None,
            "__annotations__": marked,
        },
    )
    settings = (tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone, tyro.conf.PositionalMetavarFromFieldName)
    words = given = list(sys.argv[1:] if argv is None else argv)
    others: list[str] = []

    def parse(**more: Any) -> Any:
        about = _wrapped(description) or None
        return tyro.cli(unchecked, prog=prog, description=about, args=words, config=settings, **more)

    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            if rest:
                others = [word for word in parse(return_unknown_args=True)[1] if not word.startswith("-")]
                words = [word for word in words if word not in others]
            parsed = parse()
    except SystemExit as end:
        if not end.code:
            raise
        flags = [f"--{name.replace('_', '-')}" for name in hints if name not in (*positional, rest)]
        raise ValueError(_message(box.getvalue(), words, flags)) from None
    values = {field.name: getattr(parsed, field.name) for field in dataclasses.fields(parsed)}
    if rest:  # an option of several words has taken what stands behind it
        taken = {word for value in values.values() if isinstance(value, tuple) for word in value if "=" in str(word)}
        values |= {
            name: tuple(word for word in value if word not in taken)
            for name, value in values.items()
            if isinstance(value, tuple)
        }
        values[rest] = tuple(word for word in given if word in taken or word in others)
    return options(**values)


def run_program(
    options: type[Options],
    work: Callable[[Options, Progress], str],
    prog: str,
    description: str,
    argv: Sequence[str] | None = None,
) -> int:
    """Parse the options of a program that fills a directory, do its work, and write what that returns to stdout.

    Returns the exit code, see `exit_code`. SIGTERM, which batch systems send, is taken as Ctrl-C.
    """

    def program() -> int:
        try:
            with interruptible(signal.SIGTERM) as progress:
                sys.stdout.write(work(parse_options(options, prog, description, argv), progress))
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the output directory is as before") from None
        return 0

    return exit_code(program, f"{Path(prog).name}: ")


def exit_code(program: Callable[[], int], prefix: str = "") -> int:
    """Return the exit code of `program`, or say in a line what ended it early.

    That is 1 failed, 2 wrong input, 130 interrupted, 141 nobody reads.
    """
    try:
        code = program()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as interrupt:
        sys.stderr.write(f"\n{prefix}interrupted{'; ' if str(interrupt) else ''}{interrupt}\n")
        return 130
    except BrokenPipeError:
        # `| head` has seen enough; what is left must not be flushed at exit. 141 is what a shell reports after SIGPIPE.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"{prefix}error: {error}\n")
        return 1 if isinstance(error, RuntimeError) else 2


def command_line(command: str, options: Any) -> list[str]:
    """Return the words with which `command` gets these `options`, those that have their default left out."""
    words = shlex.split(command)
    for field in dataclasses.fields(options):
        value, flag = getattr(options, field.name), f"--{field.name.replace('_', '-')}"
        if value == field.default or value is None or value is False:
            continue
        words.append(flag)
        if value is not True:
            words += map(str, value if isinstance(value, tuple) else [value])
    return words


def _wrapped(description: str) -> str:
    """Return a description in lines that a terminal can show; tyro would make one line of a paragraph, and break words.

    Every line is indented, which tyro leaves as it is; lines that were, such as examples, are not wrapped.
    """
    width = min(shutil.get_terminal_size().columns, 100) - 2
    blocks: list[str] = []
    for line in description.strip().splitlines():
        if blocks and line[:1].strip() and blocks[-1][:1].strip() and not blocks[-1].endswith(":"):
            blocks[-1] += f" {line}"
        else:
            blocks.append(line)
    return "\n".join(
        textwrap.fill(block, width, initial_indent=" ", subsequent_indent=" ") if block[:1].strip() else block
        for block in blocks
    )


def _message(box: str, words: Sequence[str], flags: Sequence[str]) -> str:
    """Return what tyro wrote into a box in a line: what was given, what is wanted, where to read more."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()[1:]
    said = " ".join(" ".join(lines).translate(str.maketrans("│╰─╯", "    ")).split())
    said, _, more = said.partition(" For full helptext, ")
    problems = []
    if found := re.match(r"Error parsing (--[\w-]+):.*Argument helptext: (?:-\w, )?\1 (.+?)\.? \(default: .*\)$", said):
        behind = words[words.index(found[1]) + 1 :] if found[1] in words else []
        given = " ".join(itertools.takewhile(lambda word: not word.startswith("--"), behind))
        problems.append(f"{found[1]} {given} does not fit; wanted is {found[2]}")
    if found := re.search(r"Missing from \S.*?: (.+ \(required\))", said):
        problems.append(f"missing: {', '.join(text.strip(' .') for text in found[1].split('(required)')[:-1])}")
    # tyro adds options that it takes to be meant, of which one is enough.
    if found := re.search(r"Unrecognized options: (.+?)(?: Perhaps you meant.*)?$", said):
        near = difflib.get_close_matches(found[1].split()[0], flags, n=1)
        hint = f"did you mean {near[0]}?" if near else f"options are {', '.join(flags)}"
        problems.append(f"{found[1].replace(',', '')} is no option; {hint}")
    return f"{'; '.join(problems) or said} ({more.removeprefix('run').removeprefix('see').strip(': ')})"
