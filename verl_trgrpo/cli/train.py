"""Train with veRL. Words that are no options are Hydra overrides, as for python -m verl.trainer.main_ppo.

examples:
  verl-trgrpo train data.train_files=train.parquet data.val_files=test.parquet \\
      actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct trainer.n_gpus_per_node=8 \\
      data.train_batch_size=256 actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.use_dynamic_bsz=true
  verl-trgrpo train --recipe recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml algorithm=grpo

Problems come out before anything is started. Without an accelerator platform=cpu is chosen. The run directory,
trainer.default_local_dir, receives checkpoints, train-N.log, metrics-N.jsonl, curves.png, summary.json, config.yaml and
run.json. The same command goes on from the latest checkpoint; trainer.resume_mode=disable starts over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_trgrpo.common.options import parse_options
from verl_trgrpo.runs.compose import DEFAULT_CONFIG


@dataclass(frozen=True)
class TrainOptions:
    """What to train.

    Args:
        overrides: Hydra overrides.
        config_name: primary configuration.
        recipe: a recipe file, in place of --config-name.
    """

    overrides: tuple[str, ...] = ()
    config_name: str = DEFAULT_CONFIG
    recipe: Path | None = None


def run(words: Sequence[str]) -> int:
    options = parse_options(TrainOptions, "verl-trgrpo train", __doc__, words, rest="overrides")
    train(options.overrides, options.recipe or options.config_name)
    return 0


def train(overrides: Sequence[str], source: str | Path, title: str | None = None) -> Path:
    """Train, draw the curves, print the end of the run in a few lines, and return the run directory.

    Args:
        overrides: Hydra overrides.
        source: a recipe file or the name of a primary configuration.
        title: of the curves; the run directory's name by default.
    """
    from verl_trgrpo.runs.charts import plot_curves
    from verl_trgrpo.runs.metrics import MetricsLog
    from verl_trgrpo.runs.train import run_training

    outcome = run_training(overrides, source)
    run_dir, summary = outcome.run_dir, outcome.summary
    steps = MetricsLog(run_dir).read()
    curves = plot_curves(steps, run_dir / "curves.png", title or run_dir.name) if steps else "none: no step was logged"

    def shown(name: str) -> str:
        value = summary[name]
        return "n/a" if value is None else f"{value:.3f}"

    print(f"steps                {summary['steps']} in {summary['training_seconds']:.0f} s of training")
    print(
        f"validation accuracy  {shown('accuracy_first')} -> {shown('accuracy_last')} "
        f"(best {shown('accuracy_best')} at step {summary['accuracy_best_step']})"
    )
    print(f"training reward      {shown('reward_first')} -> {shown('reward_last')} (means of five steps)")
    print(f"curves               {curves}")
    print(f"checkpoint           {outcome.checkpoint or 'none saved (trainer.save_freq)'}")
    if outcome.log_file is None:
        print("this run had already finished; trainer.resume_mode=disable starts it over")
    return run_dir
