"""What the commands share that train a tiny model from the package."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from verl_trgrpo.cli.train import print_outcome


def add_arguments(parser: argparse.ArgumentParser, out: str) -> None:
    """Add --out, --seed and the overrides."""
    parser.add_argument("--out", type=Path, default=Path(out), help="directory (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of sampling and of the order of prompts (default: 0)")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides, e.g. algorithm=grpo")


def train(
    arguments: argparse.Namespace, config_name: str, checkpoint: Path, task: str, more: Sequence[str] = ()
) -> Path:
    """Train on ``train.parquet`` and ``test.parquet`` in ``OUT/data``, print the outcome and return the run directory.

    Args:
        arguments: as `add_arguments` defines them.
        config_name: primary configuration.
        checkpoint: model to start from.
        task: for the title of the curves.
        more: further Hydra overrides.
    """
    from verl_trgrpo.runs.launch.configuration import chosen_value, quoted, seed_overrides
    from verl_trgrpo.runs.launch.run import run_training

    data, seed = arguments.out / "data", arguments.seed
    print(f"model: {checkpoint}", file=sys.stderr)
    algorithm = chosen_value(arguments.overrides, "algorithm") or "tr_grpo"
    name = f"{algorithm}-seed{seed}"
    run_dir = (arguments.out / name).resolve()
    # What the user gives comes last and wins.
    overrides = [
        f"data.train_files={quoted((data / 'train.parquet').resolve())}",
        f"data.val_files={quoted((data / 'test.parquet').resolve())}",
        f"actor_rollout_ref.model.path={quoted(checkpoint)}",
        *seed_overrides(seed),
        f"trainer.default_local_dir={quoted(run_dir)}",
        f"trainer.experiment_name={name}",
        *more,
        *arguments.overrides,
    ]
    outcome = run_training(overrides, config_name, title=f"{algorithm} on {task}, seed {seed}")
    print_outcome(outcome)
    return outcome.run_dir
