"""``verl-trgrpo quickstart``: puzzles, a tiny warm-started model, and real veRL training in minutes on two cores."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from verl_trgrpo.cli.train import print_outcome
from verl_trgrpo.tiny_model import CHECKPOINT

_EPILOG = """\
examples:
  verl-trgrpo quickstart                        TR-GRPO
  verl-trgrpo quickstart algorithm=grpo         the baseline, everything else equal
  verl-trgrpo quickstart --seed 1 trainer.total_training_steps=10

A second time the same command finds everything in place and only shows the result.
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "quickstart",
        help="train a tiny model on Knights-and-Knaves puzzles, on a CPU, in minutes",
        description="Generate puzzles, take the tiny warm-started model that ships with the package, and train it with "
        "veRL (Ray, FSDP2, vLLM). Further arguments are Hydra overrides on the configuration kk_quickstart.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("runs/quickstart"), help="directory (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of sampling and of the order of prompts (default: 0)")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides, e.g. algorithm=grpo")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.launch.configuration import chosen_value, quoted
    from verl_trgrpo.launch.run import run_training
    from verl_trgrpo.tiny_model.dataset import build_dataset

    data = arguments.out / "data"
    built = build_dataset(data)
    print(f"puzzles: {data} ({'generated' if built else 'already there'})", file=sys.stderr)
    print(f"model: {CHECKPOINT}", file=sys.stderr)
    algorithm = chosen_value(arguments.overrides, "algorithm") or "tr_grpo"
    name = f"{algorithm}-seed{arguments.seed}"
    # What the user gives comes last and wins.
    overrides = [
        f"data.train_files={quoted((data / 'train.parquet').resolve())}",
        f"data.val_files={quoted((data / 'test.parquet').resolve())}",
        f"actor_rollout_ref.model.path={quoted(CHECKPOINT)}",
        f"data.seed={arguments.seed}",
        f"actor_rollout_ref.rollout.seed={arguments.seed}",
        f"actor_rollout_ref.actor.data_loader_seed={arguments.seed}",
        f"trainer.default_local_dir={quoted((arguments.out / name).resolve())}",
        f"trainer.experiment_name={name}",
        *arguments.overrides,
    ]
    outcome = run_training(
        overrides, "kk_quickstart", title=f"{algorithm} on Knights-and-Knaves, seed {arguments.seed}"
    )
    print_outcome(outcome)
    return 0
