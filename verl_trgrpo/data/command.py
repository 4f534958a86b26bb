"""What the command lines of the builders share: options, progress bars, messages and exit codes.

A door in ``data_prep`` is a description with examples and one call::

    sys.exit(run_builder(KkOptions, build, "data_prep/kk.py", DESCRIPTION))
"""

import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from verl_trgrpo.common.options import parse_options
from verl_trgrpo.common.problems import count_of, raise_problems
from verl_trgrpo.common.progress import Progress, exit_code, interruptible
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
        problems = self.problems()
        if self.limit is not None and self.limit < 1:
            problems.append(f"limit is {self.limit}; ask for at least 1 row, or leave it out for all")
        if self.num_proc < 1:
            problems.append(f"num_proc is {self.num_proc}; use at least 1 process")
        if self.on_error not in ("raise", "skip"):
            problems.append(f"on_error is {self.on_error!r}; choose raise or skip")
        raise_problems(problems)

    def problems(self) -> list[str]:
        """Return what is wrong with a builder's own fields, each with value, reason and remedy."""
        return []


Options = TypeVar("Options", bound=BuilderOptions)


def run_builder(
    options_class: type[Options],
    build: Callable[[Options, Progress], BuildResult],
    prog: str,
    description: str,
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
    name = Path(prog).name
    try:
        with interruptible(signal.SIGTERM) as progress:
            options = parse_options(options_class, prog, description, argv)
            _report(options.out, build(options, progress))
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{name}: error: {error}\n")
        return 2
    except KeyboardInterrupt as interrupt:
        sys.stderr.write(f"\n{name}: interrupted; the output directory is as before\n")
        return exit_code(interrupt)
    return 0


def _report(out: Path, result: BuildResult) -> None:
    """Print what was read, dropped and written."""
    if not result.built:
        print(f"{out} already has this data set, built with the same arguments; --force builds it again")
        return
    for source, counts in result.manifest["counts"].items():
        dropped = "".join(f"; {count} dropped: {reason}" for reason, count in counts["dropped"].items())
        print(f"{source}: {counts['kept']} kept of {counts['read']} read{dropped}")
    for name, value in result.manifest["notes"].items():
        print(f"note: {name}: {value}")
    if skipped := result.manifest["skipped"]:
        print(f"{count_of(len(skipped), 'malformed row')} skipped, the first: {skipped[0]}")
    for name, facts in result.manifest["files"].items():
        print(f"{out / name}: {count_of(facts['rows'], 'row')}")
