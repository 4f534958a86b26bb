"""Commands that load a model: ``verl-trgrpo preview``, ``eval`` and ``export``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from verl_trgrpo.cli.runs import RunOptions
from verl_trgrpo.common.findings import Level, raise_invalid
from verl_trgrpo.common.options import Options
from verl_trgrpo.common.progress import interruptible
from verl_trgrpo.common.text import show
from verl_trgrpo.evaluation.options import EvalOptions
from verl_trgrpo.tasks.registry import DEFAULT_REWARD_KEY


@dataclass(frozen=True)
class PreviewOptions(RunOptions, Options):
    """Select the configuration and how much to sample.

    Args:
        prompts: number of training prompts.
        samples: responses to each prompt.
        rare_tokens: rare tokens (p < 0.25) to replace by likely ones, to see which decide the reward; 0 for none. Each needs 16
            continuations.
        reward: data source whose reward scores rows of data sources without a reward.
    """

    prompts: Annotated[int, "[1, inf)"] = 4
    samples: Annotated[int, "[1, inf)"] = 4
    rare_tokens: Annotated[int, "[0, inf)"] = 0
    reward: str | None = None


def preview(options: PreviewOptions) -> int:
    """Sample responses to a few training prompts as a run would, and show their rewards, before the run starts.

    examples:
      verl-trgrpo preview recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml
      verl-trgrpo preview trgrpo_trainer --prompts 8 --samples 8 data.train_files=train.parquet ...

    notes:
      Model, training files, sampling, lengths and reward function are those of the configuration.
      Only vLLM is started, not Ray or a trainer. Without an accelerator platform=cpu is used.
      GRPO learns nothing from a prompt whose responses all get the same reward.
    """
    from verl_trgrpo.launch.train import compose_here

    chosen = (f"++{DEFAULT_REWARD_KEY}={options.reward}",) if options.reward else ()
    source, overrides = options.configuration()
    run = compose_here(source, overrides + chosen)
    from verl_trgrpo.checks.check import check
    from verl_trgrpo.evaluation import preview
    from verl_trgrpo.evaluation.rare_tokens import cost_text

    raise_invalid(check(run).messages(Level.ERROR))
    if options.rare_tokens:
        show(f"rare tokens: {cost_text(options.prompts * options.samples, options.rare_tokens)}", sys.stderr)
    with interruptible() as progress:
        found, diagnosis = preview.preview(run.config, options.prompts, options.samples, progress, options.rare_tokens)
    show("\n\n".join(filter(None, (preview.preview_text(found), diagnosis))))
    return 0


def evaluate(options: EvalOptions) -> int:
    """Sample responses to test files with vLLM; report avg@k and pass@k per data source, with intervals.

    examples:
      verl-trgrpo eval --model runs/tr_grpo/global_step_350 --data data/kk/test.parquet --preset kk
      verl-trgrpo eval --model models/search-3b --data data/search_qa/test.parquet --preset search_qa \\
          --agent url=http://127.0.0.1:8000/retrieve max_searches=4

    notes:
      --out receives the responses, their scores, report.json and report.txt.
      The same command continues an interrupted evaluation.
      A sharded veRL checkpoint is merged once, into merged_hf beside its actor directory.
      docs/evaluation.md has more.
    """
    from verl_trgrpo.evaluation import evaluate

    try:
        with interruptible() as progress:
            table, generated = evaluate.evaluate(options, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the same command continues with the responses in {options.directory}") from None
    show(table, end="")
    show(f"{options.directory / evaluate.REPORT}: {generated:,} new responses")
    return 0


@dataclass(frozen=True)
class ExportOptions:
    """Select the checkpoint and where to write it.

    Args:
        run: run directory, whose latest checkpoint is taken, or one of its global_step_N.
        out: directory for the model; must be empty or not exist.
    """

    run: tyro.conf.Positional[Path]
    out: Path


def export(options: ExportOptions) -> int:
    """Write a run's checkpoint as a Hugging Face directory with a model card.

    examples:
      verl-trgrpo export runs/quickstart/tr_grpo-seed0 --out models/quickstart
      verl-trgrpo export runs/kk/tr_grpo/global_step_350 --out models/kk-3b

    notes:
      The model card is made from the run's own record: base model, data, algorithm, versions, validation accuracy.
      It shows the last two parts of local paths: read it before you publish with `hf upload OWNER/NAME OUT`.
      A sharded checkpoint is merged by veRL's merger.
    """
    from verl_trgrpo.evaluation import checkpoint

    show(f"checkpoint  {checkpoint.export(options.run, options.out)}\nmodel       {options.out}")
    return 0
