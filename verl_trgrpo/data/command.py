"""What the command lines of the builders share: arguments, progress bars, messages and exit codes."""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from verl_trgrpo.common.progress import Progress, exit_code, interruptible
from verl_trgrpo.data.build import BuildResult


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


def run_builder(name: str, build: Callable[[Progress], tuple[Path, BuildResult]]) -> int:
    """Build and report on stdout; return the exit code: 0 built or already there, 2 wrong input, 130 interrupted.

    SIGTERM, which batch systems send, is taken as Ctrl-C.

    Args:
        name: of the command, for messages.
        build: called with a progress display; returns the output directory and what was built.
    """
    try:
        with interruptible(signal.SIGTERM) as progress:
            out, result = build(progress)
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
