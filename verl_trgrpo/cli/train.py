"""``verl-trgrpo train``: veRL's trainer with this project's primary configuration."""

from __future__ import annotations

import argparse
from pathlib import Path

from verl_trgrpo.runs.launch.configuration import DEFAULT_CONFIG

_EPILOG = """\
examples:
  verl-trgrpo train data.train_files=train.parquet data.val_files=test.parquet \\
      actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct trainer.n_gpus_per_node=8 \\
      data.train_batch_size=256 actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.use_dynamic_bsz=true
  verl-trgrpo train algorithm=grpo ...              the baseline, everything else equal
  verl-trgrpo train actor_rollout_ref.actor.policy_loss.shaping.tau=6 ...
  verl-trgrpo train --recipe recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml algorithm=grpo

algorithms: grpo, tr_grpo (default), grpo_sg, tr_grpo_reverse, advantage_reweighting, dr_grpo, dapo_clip, aspo, top_entropy,
reinforce_rej, ha_dw.
Without an accelerator platform=cpu is chosen. The run directory is trainer.default_local_dir; it receives checkpoints,
train-N.log (all of veRL's output), metrics-N.jsonl, curves.png, summary.json and config.yaml. An interrupted run goes on
from its latest checkpoint when the same command is given again (trainer.resume_mode=disable starts over and moves
earlier checkpoints to abandoned-N).
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "train",
        help="train with veRL: overrides as for verl.trainer.main_ppo, a progress bar, curves at the end",
        description="Train with veRL. Arguments are Hydra overrides, as for python -m verl.trainer.main_ppo.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--config-name", default=DEFAULT_CONFIG, help="primary configuration (default: %(default)s)")
    source.add_argument("--recipe", type=Path, metavar="FILE", help="a recipe file, in place of --config-name")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.runs.launch.configuration import recipe_arguments
    from verl_trgrpo.runs.launch.run import run_training

    config_name, overrides = arguments.config_name, arguments.overrides
    if arguments.recipe:
        config_name, overrides = recipe_arguments(arguments.recipe, overrides)
    print_outcome(run_training(overrides, config_name))
    return 0


def print_outcome(outcome) -> None:
    """The end of a run in a few lines."""
    summary = outcome.summary

    def shown(name: str) -> str:
        value = summary[name]
        return "n/a" if value is None else f"{value:.3f}"

    print(f"steps                {summary['steps']} in {summary['training_seconds']:.0f} s of training")
    print(
        f"validation accuracy  {shown('accuracy_first')} -> {shown('accuracy_last')} "
        f"(best {shown('accuracy_best')} at step {summary['accuracy_best_step']})"
    )
    print(f"training reward      {shown('reward_first')} -> {shown('reward_last')} (means of five steps)")
    print(f"curves               {outcome.curves}")
    print(f"checkpoint           {outcome.checkpoint or 'none saved (trainer.save_freq)'}")
    if outcome.log_file is None:
        print("this run had already finished; trainer.resume_mode=disable starts it over")
