"""Write Knights-and-Knaves puzzles that no warm start showed, as ``train.parquet`` and ``test.parquet``.

example, from a checkout:
  python -m studies.comparisons.puzzles --out data/puzzles --train 2=16 3=64 --test 2=24 3=256

A second call finds the files and builds nothing. Exit code: 0 fine, 2 wrong input."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from verl_trgrpo.common.options import exit_code
from verl_trgrpo.demos.puzzles import build_dataset


def count(text: str) -> tuple[int, int]:
    """Return the number of people and that of puzzles of ``PEOPLE=PUZZLES``."""
    people, _, puzzles = text.partition("=")
    return int(people), int(puzzles)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory of the files")
    for split in ("train", "test"):
        text = f"puzzles to {split} with, by number of people"
        parser.add_argument(f"--{split}", type=count, nargs="+", required=True, metavar="PEOPLE=PUZZLES", help=text)
    parser.add_argument("--seed", type=int, default=0, help="equal seeds give equal files; default: %(default)s")
    options = parser.parse_args()
    build_dataset(options.out, options.seed, dict(options.train), dict(options.test))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
