"""``verl-trgrpo eval``: avg@k and pass@k of a checkpoint on test files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

_DESCRIPTION = """\
Run a checkpoint through vLLM on test files and report avg@k and pass@k per data source, with confidence intervals.

examples:
  verl-trgrpo eval --model runs/kk/tr_grpo/global_step_100 --data data/kk/test.parquet --preset kk
  verl-trgrpo eval --model Qwen/Qwen2.5-7B --data data/deepscaler/aime2024.parquet --preset aime --tensor-parallel 2
  verl-trgrpo eval --model models/search-3b --data data/search_qa/test.parquet --preset search_qa \\
      --search url=http://127.0.0.1:8000/retrieve max_searches=4
  verl-trgrpo eval --model DIR --data test.parquet --k 8 --temperature 1.0 --limit 100

A sharded veRL checkpoint is merged once by veRL's own merger, into merged_hf beside its actor directory. --out receives a
JSON line for each response as it finishes, NAME.verdicts.jsonl, report.json and report.txt; the same command again goes on
where it stopped, and one that is complete only scores again. See docs/evaluation.md for presets and intervals.
Exit code: 0 fine, 1 vLLM or the merger failed, 2 wrong input, 130 interrupted.
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    about = "evaluate a checkpoint on test files: avg@k and pass@k with confidence intervals"
    # All words, --help too, are left to tyro: nothing begins with this prefix.
    parser = commands.add_parser("eval", help=about, add_help=False, prefix_chars="\0")
    parser.add_argument("words", nargs="*")
    parser.set_defaults(run=lambda arguments: main(arguments.words))


def main(words: Sequence[str]) -> int:
    """Run ``verl-trgrpo eval``; returns its exit code."""
    from verl_trgrpo.common.options import parse_options
    from verl_trgrpo.evaluation.options import EvalOptions

    options = parse_options(EvalOptions, "verl-trgrpo eval", _DESCRIPTION, words)
    from verl_trgrpo.common.progress import exit_code, interruptible
    from verl_trgrpo.evaluation.run import REPORT, evaluate

    try:
        with interruptible() as progress:
            table, generated = evaluate(options, progress)
    except KeyboardInterrupt as interrupt:
        print(f"\ninterrupted; the same command goes on with what is in {options.directory}", file=sys.stderr)
        return exit_code(interrupt)
    print(table, end="")
    print(f"{options.directory / REPORT}: {generated:,} responses made now")
    return 0
