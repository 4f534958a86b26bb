"""``verl-trgrpo data``: build, check and decontaminate data files."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, get_type_hints

from verl_trgrpo.common.options import parse_options
from verl_trgrpo.common.progress import interruptible
from verl_trgrpo.common.text import show
from verl_trgrpo.curation.data_check import CheckOptions
from verl_trgrpo.curation.decontaminate import ContaminationOptions


def build(words: Sequence[str]) -> int:
    """Build the Parquet files of a task, the first of `words`, with the task's own builder and its options."""
    from verl_trgrpo.tasks.data_set import manifest_text
    from verl_trgrpo.tasks.registry import known_builders
    from verl_trgrpo.tasks.task import imported

    function = imported(known_builders()[words[0]].function)
    help_text, _, _ = (inspect.getdoc(function) or "").partition("\n\nReturns:")
    options: Any = parse_options(
        get_type_hints(function)["options"], f"verl-trgrpo data build {words[0]}", help_text, words[1:]
    )
    try:
        with interruptible() as progress:
            manifest = function(options, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the output directory is as before") from None
    show(manifest_text(options.out, manifest), end="")
    return 0


def check(options: CheckOptions) -> int:
    """Check data files for the columns, prompts and ground truths that veRL and the rewards need.

    examples:
      verl-trgrpo data check --train data/kk/train.parquet --test data/kk/test.parquet
      verl-trgrpo data check --train train.parquet --tokenizer models/Qwen2.5-3B-Instruct --max-prompt-length 1024
      verl-trgrpo data check --train train.parquet --tokenizer models/Qwen3-4B --template enable_thinking=false
      verl-trgrpo data check --train train.parquet --reward math --prompt-key question --all

    notes:
      docs/data_check.md describes each check. Parquet, JSON and JSON Lines files are opened as veRL opens them.
      Rewards of your own are imported through VERL_USE_EXTERNAL_MODULES, as in veRL.

    exit codes:
      0 no errors, 1 errors (with --strict also warnings), 2 invalid input
    """
    from verl_trgrpo.common.findings import Level
    from verl_trgrpo.curation.data_check import check_files

    with interruptible() as progress:
        report = check_files(options, progress)
    show(report.render(), end="")
    return int(bool(report.count(Level.ERROR) or (options.strict and report.count(Level.WARNING))))


def decontaminate(options: ContaminationOptions) -> int:
    """Find train rows whose prompts are in test files; with --out, write a train file without them.

    examples:
      verl-trgrpo data decontaminate train.parquet --against math500.parquet aime2024.parquet --out clean.parquet

    notes:
      A train row is contaminated if its prompt equals a test prompt (regardless of case, white space and names in
      puzzles), or if the share --threshold of the words of the test question is in runs of --ngram words that the
      train question contains, too.
      A manifest is written beside --out.

    exit codes:
      0 nothing found, or --out written; 1 contaminated rows found and not removed; 2 invalid input
    """
    from verl_trgrpo.curation.decontaminate import contamination_text, find_contamination, write_clean

    with interruptible() as progress:
        found = find_contamination(options, progress)
    if options.out:
        write_clean(found, options)
    show(contamination_text(found, options.out), end="")
    return int(bool(found.matches) and options.out is None)
