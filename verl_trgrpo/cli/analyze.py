"""``verl-trgrpo analyze``."""

from __future__ import annotations

from verl_trgrpo.analysis.analyze import AnalyzeOptions


def run(options: AnalyzeOptions) -> int:
    """Measure token gradients of a checkpoint's own rollouts, or the sharpness of its loss.

    examples:
      verl-trgrpo analyze --model runs/tr_grpo/global_step_350 --data train.parquet --shaping sigmoid linear:alpha=0.3
      verl-trgrpo analyze --model runs/tr_grpo/global_step_350 --data test.parquet --only-tokens
      verl-trgrpo analyze --model runs/grpo/global_step_350 runs/tr_grpo/global_step_350 --data train.parquet --sharpness

    output, in --out:
      gradients.json, gradients.png, and tokens.html, a page that shows which tokens the weights turn down
      sharpness.json with --sharpness
      docs/analysis.md explains each figure.

    exit codes:
      0 success
      1 failed, or a token's gradient is outside its theoretical bounds (docs/analysis.md)
      2 invalid input
      130 interrupted
    """
    from verl_trgrpo.analysis.analyze import analyze
    from verl_trgrpo.common.progress import interruptible

    with interruptible() as progress:
        text, within_bounds = analyze(options, progress)
    print(text)
    return int(not within_bounds)
