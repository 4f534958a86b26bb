"""``verl-trgrpo data``: check, show and decontaminate data files."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

_EPILOG = """\
examples:
  verl-trgrpo data check data/kk/train.parquet data/kk/test.parquet --tokenizer Qwen2.5-3B-Instruct
  verl-trgrpo data show data/kk/train.parquet --rows 1
  verl-trgrpo data decontaminate train.parquet --against math500.parquet aime2024.parquet --out clean.parquet
"""

_CHECK_EPILOG = """\
examples:
  verl-trgrpo data check data/kk/train.parquet data/kk/test.parquet
  verl-trgrpo data check --train dapo.parquet --test aime.parquet math500.parquet --no-rewards
  verl-trgrpo data check train.parquet --tokenizer models/Qwen2.5-3B-Instruct --max-prompt-length 1024

A file is a train or test file if --train or --test says so, else if extra_info.split of all its rows does. Rewards that
you registered are found through VERL_USE_EXTERNAL_MODULES, as in veRL. Exit code: 0 without errors, 1 with errors (with
--strict also with warnings), 2 for wrong input. See docs/data.md for what each check means.
"""

_SHOW_EPILOG = """\
examples:
  verl-trgrpo data show train.parquet
  verl-trgrpo data show train.parquet --start 1000 --rows 5 | less
  verl-trgrpo data show test.parquet --data-source aime2024 --index 12 --full --tokenizer models/Qwen2.5-3B-Instruct

Characters that could act on the terminal are written as \\x1b and the like. NO_COLOR turns colours off.
"""

_DECONTAMINATE_EPILOG = """\
examples:
  verl-trgrpo data decontaminate train.parquet --against math500.parquet aime2024.parquet
  verl-trgrpo data decontaminate train.parquet --against test.parquet --ngram 8 --threshold 0.7 --out clean.parquet

A train row is contaminated if its prompt equals a test prompt (upper and lower case and white space aside; puzzles: names
aside), or if at least the share --threshold of the test prompt's words lies in runs of --ngram words that the train prompt
has too. Instructions that many prompts of a file have in common do not count. Only reports unless --out is given, which
writes the rows that are left, and beside it NAME.manifest.json with every row dropped and why.
Exit code: 0 nothing found, or --out written; 1 contaminated rows found and not removed; 2 wrong input.
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "data",
        help="check data files, look at their rows, remove train rows that are in test files",
        description="Work with veRL's parquet files. See docs/data.md.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_check(actions)
    _add_show(actions)
    _add_decontaminate(actions)


def run(arguments: argparse.Namespace) -> int:
    action = {"check": _check, "show": _show, "decontaminate": _decontaminate}[arguments.action]
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = action(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("\ninterrupted; nothing was changed", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe has seen enough; what is left must not be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _subparser(actions: argparse._SubParsersAction, name: str, about: str, epilog: str) -> argparse.ArgumentParser:
    return actions.add_parser(
        name, help=about, description=about, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def _add_check(actions: argparse._SubParsersAction) -> None:
    parser = _subparser(actions, "check", "Check parquet files for what veRL and the rewards need.", _CHECK_EPILOG)
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="parquet files")
    parser.add_argument("--train", type=Path, nargs="+", default=[], metavar="FILE", help="train files")
    parser.add_argument("--test", type=Path, nargs="+", default=[], metavar="FILE", help="test (validation) files")
    parser.add_argument("--tokenizer", type=Path, metavar="DIR", help="local model directory, to count tokens")
    parser.add_argument("--max-prompt-length", type=int, metavar="N", help="tokens (data.max_prompt_length)")
    parser.add_argument("--no-rewards", action="store_true", help="do not score the ground truths")
    parser.add_argument("--strict", action="store_true", help="warnings give exit code 1, too")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def _add_show(actions: argparse._SubParsersAction) -> None:
    parser = _subparser(actions, "show", "Print rows of a parquet file for reading.", _SHOW_EPILOG)
    parser.add_argument("file", type=Path, metavar="FILE", help="parquet file")
    parser.add_argument("--rows", type=int, default=3, metavar="N", help="at most N rows (default: %(default)s)")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--start", type=int, metavar="K", help="from the K-th fitting row on, from 0 (default: 0)")
    place.add_argument("--index", type=int, metavar="I", help="rows with this extra_info.index")
    parser.add_argument("--data-source", metavar="S", help="rows of this data source")
    parser.add_argument("--full", action="store_true", help="show long texts in full length")
    parser.add_argument(
        "--tokenizer", type=Path, metavar="DIR", help="show the prompt as this chat template renders it"
    )


def _add_decontaminate(actions: argparse._SubParsersAction) -> None:
    about = "Find train rows whose prompts are in test files, and write a train file without them."
    parser = _subparser(actions, "decontaminate", about, _DECONTAMINATE_EPILOG)
    parser.add_argument("train", type=Path, metavar="TRAIN", help="parquet file")
    parser.add_argument("--against", type=Path, nargs="+", required=True, metavar="TEST", help="test files")
    parser.add_argument("--ngram", type=int, default=13, metavar="N", help="words in a run (default: %(default)s)")
    parser.add_argument("--threshold", type=float, default=0.8, metavar="T", help="share (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="CLEAN", help="parquet file to write")
    parser.add_argument("--force", action="store_true", help="replace an --out that is not from here")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _check(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.common.progress import interruptible
    from verl_trgrpo.data.check import CheckOptions, check_files
    from verl_trgrpo.data.checks.report import render

    options = CheckOptions(
        files=tuple(arguments.files),
        train=tuple(arguments.train),
        test=tuple(arguments.test),
        tokenizer=arguments.tokenizer,
        max_prompt_length=arguments.max_prompt_length,
        rewards=not arguments.no_rewards,
    )
    with interruptible() as progress:
        report = check_files(options, progress)
    print(json.dumps(report.as_dict(), indent=2) if arguments.json else render(report), end="")
    return int(bool(report.errors or (arguments.strict and report.warnings)))


def _show(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.data.show import ShowOptions, show_rows

    options = ShowOptions(
        file=arguments.file,
        rows=arguments.rows,
        start=arguments.start,
        index=arguments.index,
        data_source=arguments.data_source,
        full=arguments.full,
        tokenizer=arguments.tokenizer,
        color=sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
    )
    for text in show_rows(options):
        print(text)
    return 0


def _decontaminate(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.common.progress import interruptible
    from verl_trgrpo.data.contamination import ContaminationOptions, find_contamination
    from verl_trgrpo.data.decontaminate import check_output, render, write_clean

    options = ContaminationOptions(
        train=arguments.train,
        tests=tuple(arguments.against),
        ngram=arguments.ngram,
        threshold=arguments.threshold,
    )
    if arguments.out:
        check_output(arguments.out, options, arguments.force)
    with interruptible() as progress:
        found = find_contamination(options, progress)
    manifest = write_clean(found, options, arguments.out, arguments.force) if arguments.out else None
    result = {**found.as_dict(), "out": str(arguments.out) if arguments.out else None}
    print(json.dumps(result, indent=2) + "\n" if arguments.json else render(found, arguments.out), end="")
    return int(bool(found.matches) and manifest is None)
