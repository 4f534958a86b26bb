"""``verl-trgrpo data``: check and decontaminate data files."""

from __future__ import annotations

from collections.abc import Sequence

from verl_trgrpo.common.options import parse_options
from verl_trgrpo.common.progress import interruptible

_CHECK = """\
Check parquet files for what veRL and the rewards need.

examples:
  verl-trgrpo data check --train data/kk/train.parquet --test data/kk/test.parquet
  verl-trgrpo data check --train train.parquet --tokenizer models/Qwen2.5-3B-Instruct --max-prompt-length 1024

docs/data.md says what each check means. Rewards of your own are found through VERL_USE_EXTERNAL_MODULES, as in veRL.
Exit code: 0 without errors, 1 with errors (with --strict also with warnings), 2 for wrong input.
"""

_DECONTAMINATE = """\
Find train rows whose prompts are in test files; with --out, write a train file without them, and a manifest beside it.

examples:
  verl-trgrpo data decontaminate train.parquet --against math500.parquet aime2024.parquet --out clean.parquet

A train row is contaminated if its prompt equals a test prompt (case, white space and names in puzzles aside), or if the
share --threshold of the words of the test question lies in runs of --ngram words that it has, too.
Exit code: 0 nothing found, or --out written; 1 contaminated rows found and not removed; 2 wrong input.
"""


def check(words: Sequence[str]) -> int:
    from verl_trgrpo.data.options import CheckOptions

    options = parse_options(CheckOptions, "verl-trgrpo data check", _CHECK, words)
    from verl_trgrpo import tasks
    from verl_trgrpo.common.findings import Level
    from verl_trgrpo.data.check import check_files
    from verl_trgrpo.tasks.knights_and_knaves.logic import puzzle_key
    from verl_trgrpo.tasks.registry import import_external_modules

    import_external_modules()
    with interruptible() as progress:
        report = check_files(options, tasks, puzzle_key, progress)
    print(report.render(), end="")
    return int(bool(report.count(Level.ERROR) or (options.strict and report.count(Level.WARNING))))


def decontaminate(words: Sequence[str]) -> int:
    from verl_trgrpo.data.options import ContaminationOptions

    options = parse_options(
        ContaminationOptions, "verl-trgrpo data decontaminate", _DECONTAMINATE, words, positional=["train"]
    )
    from verl_trgrpo.data.decontaminate import find_contamination, render, write_clean
    from verl_trgrpo.tasks.knights_and_knaves.logic import puzzle_key

    with interruptible() as progress:
        found = find_contamination(options, puzzle_key, progress)
    if options.out:
        write_clean(found, options)
    print(render(found, options.out), end="")
    return int(bool(found.matches) and options.out is None)
