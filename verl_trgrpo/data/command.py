"""What the command lines of the builders share: options, progress bars, messages and exit codes.

A door in ``data_prep`` is a description with examples and one call::

    sys.exit(run_builder(KkOptions, build, "data_prep/kk.py", DESCRIPTION))
"""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from verl_trgrpo.common.options import parse_options
from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.common.progress import exit_code, interruptible
from verl_trgrpo.data.build import BuildResult


@dataclass(frozen=True, kw_only=True)
class BuilderOptions:
    """Options that every builder has; a builder's own class adds fields and overrides `problems`.

    Raises ValueError that lists everything that is wrong.

    Args:
        out: directory for the files.
        limit: at most this many rows per file, drawn with the seed; all if left out.
        seed: same sources and seed, same files.
        num_proc: processes that share the work.
        on_error: a malformed row stops the build (raise), or is skipped and counted (skip).
        force: build even if the directory has this data set, or data files of unknown origin.
    """

    out: Path
    limit: int | None = None
    seed: int = 0
    num_proc: int = 1
    on_error: Literal["raise", "skip"] = "raise"
    force: bool = False

    def __post_init__(self) -> None:
        raise_problems([*self.problems(), *common_problems(self.limit, self.num_proc, self.on_error)])

    def problems(self) -> list[str]:
        """Return what is wrong with a builder's own fields, each with value, reason and remedy."""
        return []


Options = TypeVar("Options", bound=BuilderOptions)


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that every builder has: --out, --limit, --seed, --num-proc, --on-error, --force."""
    group = parser.add_argument_group("common to all builders")
    group.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory for the files")
    group.add_argument(
        "--limit", type=int, metavar="N", help="at most N rows per file, drawn with the seed (default: all)"
    )
    group.add_argument("--seed", type=int, default=0, metavar="S", help="same sources and seed, same files (default 0)")
    group.add_argument("--num-proc", type=int, default=1, metavar="P", help="processes that share the work (default 1)")
    group.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="a malformed row stops the build (raise, the default) or is skipped and counted (skip)",
    )
    group.add_argument(
        "--force", action="store_true", help="build even if DIR has this data set or data files of unknown origin"
    )


def common_problems(limit: int | None, num_proc: int, on_error: str) -> list[str]:
    """Return what is wrong with the values of the common arguments, for the options of a builder."""
    problems = []
    if limit is not None and limit < 1:
        problems.append(f"limit is {limit}; ask for at least 1 row, or leave it out for all")
    if num_proc < 1:
        problems.append(f"num_proc is {num_proc}; use at least 1 process")
    if on_error not in ("raise", "skip"):
        problems.append(f"on_error is {on_error!r}; choose raise or skip")
    return problems


def run_builder(
    options_class: type[Options] | str,
    build: Callable[..., Any],
    prog: str = "",
    description: str = "",
    argv: Sequence[str] | None = None,
) -> int:
    """Parse a builder's options, build, and report on stdout; see `parse_options` for how fields become flags.

    SIGTERM, which batch systems send, is taken as Ctrl-C.

    Args:
        options_class: the builder's options.
        build: called with the options and a progress display; returns a `BuildResult`.
        prog: the script's path as its help names it, such as ``data_prep/kk.py``.
        description: what is built, with examples.
        argv: command-line words; those of this process if left out.

    Returns:
        the exit code: 0 built or already there, 2 wrong input, 130 interrupted.

    Raises:
        SystemExit: with 0 after ``--help``.
    """
    name = options_class if isinstance(options_class, str) else Path(prog).name
    try:
        with interruptible(signal.SIGTERM) as progress:
            if isinstance(options_class, str):  # a builder that parses its options itself
                out, result = build(progress)
            else:
                options = parse_options(options_class, prog, description, argv)
                out, result = options.out, build(options, progress)
            report(out, result)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{name}: error: {error}\n")
        return 2
    except KeyboardInterrupt as interrupt:
        sys.stderr.write(f"\n{name}: interrupted; the output directory is as before\n")
        return exit_code(interrupt)
    return 0


def report(out: Path, result: BuildResult) -> None:
    """Print what was read, dropped and written."""
    lines = []
    if not result.built:
        lines.append(f"{out} already has this data set, built with the same arguments; --force builds it again")
    else:
        for source, counts in result.manifest["counts"].items():
            dropped = "".join(f"; {count} dropped: {reason}" for reason, count in counts["dropped"].items())
            lines.append(f"{source}: {counts['kept']} kept of {counts['read']} read{dropped}")
        lines += [f"note: {name}: {value}" for name, value in result.manifest["notes"].items()]
        skipped = result.manifest["skipped"]
        if skipped:
            lines.append(f"{len(skipped)} malformed rows skipped, the first: {skipped[0]}")
        lines += [f"{out / name}: {facts['rows']} rows" for name, facts in result.manifest["files"].items()]
    sys.stdout.write("\n".join(lines) + "\n")
