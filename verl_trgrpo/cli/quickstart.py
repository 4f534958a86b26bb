"""``verl-trgrpo quickstart``: puzzles, a tiny warm-started model, and real veRL training in minutes on two cores."""

from __future__ import annotations

import argparse
import sys

from verl_trgrpo.cli import demonstration

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
    demonstration.add_arguments(parser, "runs/quickstart")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.tiny.puzzle_dataset import build_dataset
    from verl_trgrpo.tiny.puzzles import CHECKPOINT

    data = arguments.out / "data"
    built = build_dataset(data)
    print(f"puzzles: {data} ({'generated' if built else 'already there'})", file=sys.stderr)
    demonstration.train(arguments, "kk_quickstart", CHECKPOINT, "Knights-and-Knaves")
    return 0
