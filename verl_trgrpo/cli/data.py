"""``verl-trgrpo data``: build, check and decontaminate data files."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from verl_trgrpo.common.options import parse_options
from verl_trgrpo.common.progress import interruptible
from verl_trgrpo.common.text import did_you_mean, escape_controls
from verl_trgrpo.data_check import CheckOptions
from verl_trgrpo.decontaminate import ContaminationOptions


class _Builder(NamedTuple):
    """Module of `verl_trgrpo.tasks`, its options class, and the help text; the module has a function `build`."""

    module: str
    options: str
    description: str


_KK = """\
Write Knights-and-Knaves puzzles as train.parquet and test.parquet for veRL, with manifest.json.

examples:
  verl-trgrpo data build kk --out data/kk --people 3 4 5 --train 900 --test 100
  verl-trgrpo data build kk --out data/kk --paper
  verl-trgrpo data build kk --out data/kk --paper --source hf

notes:
  Every puzzle has exactly one solution and occurs once, also up to names and order, so no test puzzle is in the
  train file in other words.
"""

_DEEPSCALER = """\
Write DeepScaleR's train set and five test sets as Parquet files for veRL, with manifest.json.

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
  .jsonl, .jsonl.gz, .parquet, .arrow).
  The download was not run against the hub itself so far; if it fails, download the sets and give --source.
"""

_SEARCH_QA = """\
Write Search-R1's questions as train.parquet and test.parquet for veRL, with manifest.json.

examples:
  verl-trgrpo data build search-qa --out data/search_qa --source hf --val-per-set 100
  verl-trgrpo data build search-qa --out data/nq --source FlashRAG_datasets --train-sets nq --test-sets nq bamboogle

notes:
  The tests take a set's test split, else dev, else train. Train rows of a set that ask the same question become one
  row that accepts the answers of all; the tests keep every row.
  --limit counts the questions of each set. A directory with a copy of the collection is a source as it is.
  --source hf has been run on the repository's layout, not against the hub itself.
"""

_REASONING_GYM = """\
Write puzzles of a reasoning-gym task as train.parquet and test.parquet for veRL, with manifest.json.

examples:
  verl-trgrpo data build reasoning-gym --task gsm_symbolic --train 2000 --test 200 --out data/gsm_symbolic
  verl-trgrpo data build reasoning-gym --task chain_sum --config min_terms=3 max_terms=5 --out data/chain_sum

notes:
  The task's own verifier is the reward.
"""

BUILDERS = {
    "kk": _Builder("knights_and_knaves.rows", "KkOptions", _KK),
    "deepscaler": _Builder("math.rows", "DeepscalerOptions", _DEEPSCALER),
    "search-qa": _Builder("search_qa.rows", "SearchQaOptions", _SEARCH_QA),
    "reasoning-gym": _Builder("reasoning_gym", "ReasoningGymOptions", _REASONING_GYM),
}


def build(words: Sequence[str]) -> int:
    """Build the Parquet files of a task for veRL.

    examples:
      verl-trgrpo data build kk --out data/kk --people 3 4 5 --train 900 --test 100
      verl-trgrpo data build deepscaler --help
    """
    name, words = (words[0], words[1:]) if words else ("", ())
    if name in ("-h", "--help"):
        tasks = "\n".join(f"  {task:<15}{builder.description.splitlines()[0]}" for task, builder in BUILDERS.items())
        print(f"usage: verl-trgrpo data build TASK --out DIRECTORY ...\n\n{inspect.getdoc(build)}\n\ntasks:\n{tasks}")
        return 0
    if name not in BUILDERS:
        raise ValueError(f"data build {name or 'without a task'}: {did_you_mean(name, BUILDERS)}")
    builder = BUILDERS[name]
    module: Any = import_module(f"verl_trgrpo.tasks.{builder.module}")
    from verl_trgrpo.data.write import build_report

    options = parse_options(
        getattr(module, builder.options), f"verl-trgrpo data build {name}", builder.description, words
    )
    try:
        with interruptible(signal.SIGTERM) as progress:  # batch systems send SIGTERM
            manifest = module.build(options, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the output directory is as before") from None
    print(escape_controls(build_report(options.out, manifest)), end="")
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
    print(report.render(), end="")
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
    print(render(found, options.out), end="")
    return int(bool(found.matches) and options.out is None)
