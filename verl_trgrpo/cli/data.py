"""``verl-trgrpo data``: build, check and decontaminate data files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from verl_trgrpo.common.options import parse_options
from verl_trgrpo.common.progress import interruptible
from verl_trgrpo.common.text import show
from verl_trgrpo.data_check import CheckOptions
from verl_trgrpo.decontaminate import ContaminationOptions


def kk(words: Sequence[str]) -> int:
    """Write Knights-and-Knaves puzzles as train.parquet and test.parquet for veRL, with manifest.json.

    examples:
      verl-trgrpo data build kk --out data/kk --people 3 4 5 --train 900 --test 100
      verl-trgrpo data build kk --out data/kk --paper
      verl-trgrpo data build kk --out data/kk --paper --source hf

    notes:
      Every puzzle has exactly one solution and occurs once, also up to names and order, so no test puzzle is in the
      train file in other words.
    """
    from verl_trgrpo.tasks.knights_and_knaves import rows

    return _build("kk", kk, rows.KkOptions, rows.build, words)


def deepscaler(words: Sequence[str]) -> int:
    """Write DeepScaleR's train set and five test sets as Parquet files for veRL, with manifest.json.

    examples:
      verl-trgrpo data build deepscaler --out data/deepscaler                                  from the hub
      verl-trgrpo data build deepscaler --out data/deepscaler --source downloads/deepscaler    from a directory
      verl-trgrpo data build deepscaler --out data/probe --sets math500 minerva --limit 50 --instruction ''

    notes:
      Test sets are AIME 2024, AMC 2023, MATH-500, Minerva and OlympiadBench.
      All files have one schema. A ground truth is a list of strings of which any is right.
      Within a set, a problem that occurs again with the same answer is dropped; if the answers differ, all its copies
      are. Rows without an answer are dropped, too. All are counted.
      A source directory has deepscaler.json, aime.json, amc.json, math.json, minerva.json and olympiad_bench.json (or
      .jsonl, .jsonl.gz, .parquet, .arrow), not in a directory named train, or copies of the hub's repositories.
      The download was not run against the hub itself so far; if it fails, download the sets and give --source.
    """
    from verl_trgrpo.tasks.math import rows

    return _build("deepscaler", deepscaler, rows.DeepscalerOptions, rows.build, words)


def search_qa(words: Sequence[str]) -> int:
    """Write Search-R1's questions as train.parquet and test.parquet for veRL, with manifest.json.

    examples:
      verl-trgrpo data build search-qa --out data/search_qa --source hf --val-per-set 100
      verl-trgrpo data build search-qa --out data/nq --source FlashRAG_datasets --train-sets nq --test-sets nq bamboogle

    notes:
      The tests take a set's test split, else dev, else train. Train rows of a set that ask the same question become one
      row that accepts the answers of all; the tests keep every row.
      --limit counts the questions of each set. A directory with a copy of the collection is a source as it is.
      --source hf has been run on the repository's layout, not against the hub itself.
    """
    from verl_trgrpo.tasks.search_qa import rows

    return _build("search-qa", search_qa, rows.SearchQaOptions, rows.build, words)


def reasoning_gym(words: Sequence[str]) -> int:
    """Write puzzles of a reasoning-gym task as train.parquet and test.parquet for veRL, with manifest.json.

    examples:
      verl-trgrpo data build reasoning-gym --task gsm_symbolic --train 2000 --test 200 --out data/gsm_symbolic
      verl-trgrpo data build reasoning-gym --task chain_sum --config min_terms=3 max_terms=5 --out data/chain_sum

    notes:
      The task's own verifier is the reward.
    """
    from verl_trgrpo.tasks.reasoning_gym import rows

    return _build("reasoning-gym", reasoning_gym, rows.ReasoningGymOptions, rows.build, words)


def _build(
    task: str, command: Callable[..., int], options_class: type, build: Callable[..., Any], words: Sequence[str]
) -> int:
    """Build the Parquet files of a task for veRL; options are the `words` of its `command`."""
    from verl_trgrpo.data.write import build_report

    options: Any = parse_options(options_class, f"verl-trgrpo data build {task}", inspect.getdoc(command) or "", words)
    try:
        with interruptible() as progress:
            manifest = build(options, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the output directory is as before") from None
    show(build_report(options.out, manifest), end="")
    return 0


def check(options: CheckOptions) -> int:
    """Check data files for the columns, prompts and ground truths that veRL and the rewards need.

    examples:
      verl-trgrpo data check --train data/kk/train.parquet --test data/kk/test.parquet
      verl-trgrpo data check --train train.parquet --tokenizer models/Qwen2.5-3B-Instruct --max-prompt-length 1024
      verl-trgrpo data check --train train.parquet --tokenizer models/Qwen3-4B --template enable_thinking=false
      verl-trgrpo data check --train train.parquet --reward math --prompt-key question --all

    notes:
      docs/data.md describes each check. Parquet, JSON and JSON Lines files are opened as veRL opens them.
      Rewards of your own are imported through VERL_USE_EXTERNAL_MODULES, as in veRL.

    exit codes:
      0 no errors, 1 errors (with --strict also warnings), 2 invalid input
    """
    from verl_trgrpo.common.findings import Level
    from verl_trgrpo.data_check import check_files
    from verl_trgrpo.tasks.registry import import_external_modules

    import_external_modules()
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
    from verl_trgrpo.decontaminate import find_contamination, render, write_clean

    with interruptible() as progress:
        found = find_contamination(options, progress)
    if options.out:
        write_clean(found, options)
    show(render(found, options.out), end="")
    return int(bool(found.matches) and options.out is None)
