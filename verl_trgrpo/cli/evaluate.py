"""``verl-trgrpo eval``."""

from __future__ import annotations

from verl_trgrpo.evaluation.evaluate import EvalOptions


def run(options: EvalOptions) -> int:
    """Sample responses to test files with vLLM; report avg@k and pass@k per data source, with intervals.

    examples:
      verl-trgrpo eval --model runs/tr_grpo/global_step_350 --data data/kk/test.parquet --preset kk
      verl-trgrpo eval --model models/search-3b --data data/search_qa/test.parquet --preset search_qa \\
          --search url=http://127.0.0.1:8000/retrieve max_searches=4

    notes:
      --out receives the responses, their scores, report.json and report.txt.
      The same command continues an interrupted evaluation.
      A sharded veRL checkpoint is merged once, into merged_hf beside its actor directory.
      docs/evaluation.md has more.

    exit codes:
      0 success, 1 vLLM or the merger failed, 2 invalid input, 130 interrupted
    """
    from verl_trgrpo.common.progress import interruptible
    from verl_trgrpo.evaluation.evaluate import REPORT, evaluate

    try:
        with interruptible() as progress:
            table, generated = evaluate(options, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the same command continues with the responses in {options.directory}") from None
    print(table, end="")
    print(f"{options.directory / REPORT}: {generated:,} new responses")
    return 0
