"""``verl-trgrpo``: train and try out, check, evaluate, analyse."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from verl_trgrpo import __version__
from verl_trgrpo.cli import analyze, compare, data, doctor, evaluate, quickstart, report, search, train, validate


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 fine, 1 failed, 2 wrong input, 130 interrupted, 141 nobody reads."""
    parser = argparse.ArgumentParser(
        prog="verl-trgrpo",
        description="TR-GRPO (token-regulated GRPO, arXiv 2511.00066) for veRL.",
        epilog="Start with `verl-trgrpo doctor`, then `verl-trgrpo quickstart`.",
    )
    parser.add_argument("--version", action="version", version=f"verl-trgrpo {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (train, quickstart, doctor, data, evaluate, analyze, compare, report, search, validate):
        command.add_parser(commands)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    arguments, rest = parser.parse_known_args(argv)
    # Overrides may stand on either side of an option.
    if rest and ("overrides" not in arguments or any(word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        arguments.overrides += rest
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    """Run a command; say in a line what ended it early."""
    try:
        code = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as interrupt:
        next_time = str(interrupt) or getattr(arguments, "when_interrupted", "")
        print(f"\ninterrupted{'; ' + next_time if next_time else ''}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # `| head` has seen enough; what is left must not be flushed at exit. 141 is what a shell reports after SIGPIPE.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
