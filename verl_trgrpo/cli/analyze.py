"""Measure the gradients of a checkpoint's own rollouts, token by token, or the sharpness of its loss.

examples:
  verl-trgrpo analyze --model runs/tr_grpo/global_step_350 --data train.parquet --shaping sigmoid linear:alpha=0.3
  verl-trgrpo analyze --only-tokens --model runs/tr_grpo/global_step_350 --data test.parquet
  verl-trgrpo analyze --sharpness --model runs/grpo/global_step_350 runs/tr_grpo/global_step_350 --data train.parquet

--out receives gradients.json, gradients.png and tokens.html, a page that shows which words the weights turn down; or
sharpness.json. docs/analysis.md explains each figure.
Exit code: 0 fine, 1 a failure, or a token's gradient is outside the theoretical bounds (docs/analysis.md), 2 wrong input,
130 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence


def run(words: Sequence[str]) -> int:
    from verl_trgrpo.analysis.analyze import AnalyzeOptions, analyze
    from verl_trgrpo.common.options import parse_options
    from verl_trgrpo.common.progress import interruptible

    options = parse_options(AnalyzeOptions, "verl-trgrpo analyze", __doc__, words)
    with interruptible() as progress:
        text, within_bounds = analyze(options, progress)
    print(text)
    return int(not within_bounds)
