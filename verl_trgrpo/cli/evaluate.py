"""Run a checkpoint through vLLM on test files and report avg@k and pass@k per data source, with confidence intervals.

examples:
  verl-trgrpo eval --model runs/tr_grpo/global_step_350 --data data/kk/test.parquet --preset kk
  verl-trgrpo eval --model models/search-3b --data data/search_qa/test.parquet --preset search_qa \\
      --search url=http://127.0.0.1:8000/retrieve max_searches=4

A sharded veRL checkpoint is merged once, into merged_hf beside its actor directory. --out receives the responses, their
verdicts, report.json and report.txt; the same command goes on where it stopped. See docs/evaluation.md.
Exit code: 0 fine, 1 vLLM or the merger failed, 2 wrong input, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence


def run(words: Sequence[str]) -> int:
    from verl_trgrpo.common.options import parse_options
    from verl_trgrpo.common.progress import interruptible
    from verl_trgrpo.evaluation.evaluate import REPORT, EvalOptions, evaluate

    options = parse_options(EvalOptions, "verl-trgrpo eval", __doc__, words)
    try:
        with interruptible() as progress:
            table, generated = evaluate(options, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the same command goes on with what is in {options.directory}") from None
    print(table, end="")
    print(f"{options.directory / REPORT}: {generated:,} responses made now")
    return 0
