"""What the command lines that build the tiny models' checkpoints share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tqdm import tqdm

from verl_trgrpo.common.progress import Progress, interruptible
from verl_trgrpo.data.parquet import read_manifest
from verl_trgrpo.tiny.puzzles.supervised import ScheduleOptions

SCHEDULE_HELP = {
    "seed": "decides data, first weights and order",
    "steps": "optimizer steps",
    "batch_size": "demonstrations per step",
    "skill_share": "share of the steps in the first part, which teaches the skill",
    "skill_careful": "share of careful demonstrations in the first part",
    "final_careful": "share of careful demonstrations in the last part",
    "threads": "threads of torch",
}


def run(
    argv: Sequence[str] | None,
    *,
    module: str,
    description: str,
    options_class: type[ScheduleOptions],
    help_texts: Mapping[str, str],
    build: Callable[[Path, Any, bool, Progress], bool],
) -> int:
    """Parse the words of a command line, build, and report.

    Args:
        argv: words; None for those of this process.
        module: as in ``python -m``.
        description: for ``--help``.
        options_class: each field becomes an option.
        help_texts: of the fields that are not in `SCHEDULE_HELP`.
        build: called with directory, options, whether to force, and progress display; returns whether it built.

    Returns:
        the exit code: 0 built or already there, 2 for an error that the user can correct, 130 interrupted.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory for the files")
    for field in fields(options_class):
        text = {**SCHEDULE_HELP, **help_texts}[field.name]
        flag, default = f"--{field.name.replace('_', '-')}", field.default
        parser.add_argument(flag, type=type(default), default=default, help=f"{text} (default {default})")
    parser.add_argument("--force", action="store_true", help="train even if DIR has this checkpoint")
    arguments = vars(parser.parse_args(argv))
    out, force = arguments.pop("out"), arguments.pop("force")
    try:
        with interruptible() as progress:
            built = build(out, options_class(**arguments), force, progress)
    except (ValueError, OSError) as error:
        tqdm.write(f"warm_start: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        tqdm.write("warm_start: interrupted; the output directory is as before", file=sys.stderr)
        return 130
    if not built:
        tqdm.write(f"{out} already has this checkpoint, trained with the same options; --force trains it again")
    for kind, accuracy in (read_manifest(out) or {}).get("accuracy", {}).items():
        tqdm.write(f"{kind}: greedy accuracy {accuracy['greedy']:.2f}, made to be careful {accuracy['careful']:.2f}")
    return 0
