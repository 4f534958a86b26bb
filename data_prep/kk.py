"""Command line: build a Knights-and-Knaves data set for veRL.

For example ``python data_prep/kk.py --out data/kk --people 3 4 5 --train 900 --test 100``.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from verl_trgrpo.data.kk_build import BuildResult, KkDatasetOptions, build
from verl_trgrpo.data.kk_prompts import PROMPT_STYLES
from verl_trgrpo.data.kk_sources import HUB_DATASET, HUB_REVISION


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="kk.py",
        description="Write Knights-and-Knaves puzzles as DIR/train.parquet and DIR/test.parquet for veRL, with "
        "DIR/manifest.json. Every puzzle has exactly one solution and occurs once, also up to names and order.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory for the files")
    parser.add_argument(
        "--people", type=int, nargs="+", required=True, metavar="P", help="numbers of people in a puzzle, 2 to 8"
    )
    parser.add_argument(
        "--train", type=int, required=True, metavar="N", help="train puzzles PER number of people (so 3 sizes give 3 N)"
    )
    parser.add_argument("--test", type=int, required=True, metavar="M", help="test puzzles PER number of people")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="same seed, same files (default 0)")
    parser.add_argument(
        "--source",
        nargs="+",
        default=["generate"],
        metavar="SOURCE",
        help="generate (default, needs no network), hf (the public data set), or .jsonl, .json or .parquet files in "
        "its format",
    )
    parser.add_argument(
        "--test-source",
        nargs="+",
        default=[],
        metavar="FILE",
        help="with files as source: take the test puzzles from these (otherwise the source is split)",
    )
    parser.add_argument(
        "--hf-dataset",
        default=HUB_DATASET,
        metavar="NAME",
        help=f"with --source hf: name, or a directory with a copy of its repository (default {HUB_DATASET}; its "
        "licence is CC BY-NC-SA 4.0)",
    )
    parser.add_argument(
        "--revision", default=HUB_REVISION, help=f"with --source hf: commit, branch or tag (default {HUB_REVISION})"
    )
    parser.add_argument(
        "--prompt",
        choices=PROMPT_STYLES,
        default="paper",
        help="paper (default): instructions and the quiz in English; short: only the statements, for tiny models",
    )
    parser.add_argument("--system", action="store_true", help="put the instructions into a system message")
    parser.add_argument("--force", action="store_true", help="build even if DIR has this data set or other data files")
    return parser.parse_args(argv)


def show_progress(items: Iterable[Any], total: int, label: str) -> Iterable[Any]:
    return tqdm(items, total=total, desc=label, file=sys.stderr)


def report(out: Path, result: BuildResult) -> None:
    if not result.built:
        print(f"{out} already has this data set, built with the same arguments; --force builds it again")
        return
    for size, counts in result.manifest["counts"].items():
        dropped = "".join(f"; {count} dropped: {reason}" for reason, count in counts["dropped"].items())
        print(f"{size}: {counts['train']} train, {counts['test']} test of {counts['read']} read{dropped}")
    for name, facts in result.manifest["files"].items():
        print(f"{out / name}: {facts['rows']} rows")


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 built or already there, 2 for an error that the user can correct, 130 interrupted."""
    arguments = vars(parse_arguments(argv))
    for name in ("people", "source", "test_source"):
        arguments[name] = tuple(arguments[name])
    try:
        options = KkDatasetOptions(**arguments)
        report(options.out, build(options, show_progress))
    except (ValueError, OSError) as error:
        print(f"kk.py: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("kk.py: interrupted; the output directory is as before", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
