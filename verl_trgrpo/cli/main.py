"""``verl-trgrpo``: train and try out, check, evaluate, analyse."""

from __future__ import annotations

import argparse
import functools
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence

from verl_trgrpo import __version__
from verl_trgrpo.cli import analyze, data, evaluate, search

# Commands that read their own words: module, function, and what they do.
_COMMANDS = {
    ("train",): ("train", "main", "train with veRL: Hydra overrides, a progress bar, curves at the end"),
    ("quickstart",): (
        "demonstrations",
        "quickstart",
        "train a tiny model on Knights-and-Knaves puzzles, on a CPU, in minutes",
    ),
    ("doctor",): (
        "doctor",
        "main",
        "check versions, device, registration with veRL and vLLM; says the remedy for each failure",
    ),
    ("validate",): (
        "validate",
        "main",
        "find everything that is wrong with a recipe or configuration, without starting it",
    ),
    ("compare",): ("compare", "main", "train algorithms with several seeds; table with intervals and paired tests"),
    ("report",): ("report", "main", "compare training runs on one HTML page: curves, weights, table, responses"),
    ("search", "demo"): ("demonstrations", "search_demo", "train a tiny model to search, on a CPU, in minutes"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 fine, 1 failed, 2 wrong input, 130 interrupted, 141 nobody reads."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    words = list(sys.argv[1:] if argv is None else argv)
    for command, (module, function, _) in _COMMANDS.items():
        if tuple(words[: len(command)]) == command:
            run = getattr(importlib.import_module(f"verl_trgrpo.cli.{module}"), function)
            return _run(functools.partial(run, words[len(command) :]))
    parser = argparse.ArgumentParser(
        prog="verl-trgrpo",
        description="TR-GRPO (token-regulated GRPO, arXiv 2511.00066) for veRL.",
        epilog="Start with `verl-trgrpo doctor`, then `verl-trgrpo quickstart`.",
    )
    parser.add_argument("--version", action="version", version=f"verl-trgrpo {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for (name, *more), (_, _, about) in _COMMANDS.items():
        if not more:
            commands.add_parser(name, help=about)
    for room in (data, evaluate, analyze, search):
        room.add_parser(commands)
    arguments, rest = parser.parse_known_args(words)
    # Overrides may stand on either side of an option.
    if rest and ("overrides" not in arguments or any(word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        arguments.overrides += rest
    return _run(lambda: arguments.run(arguments), getattr(arguments, "when_interrupted", ""))


def _run(command: Callable[[], int], when_interrupted: str = "") -> int:
    """Run a command; say in a line what ended it early."""
    try:
        code = command()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as interrupt:
        next_time = str(interrupt) or when_interrupted
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
