"""``verl-trgrpo search demo``: a tiny model learns to search, with a real index, server and multi-turn training."""

from __future__ import annotations

import argparse
import sys

from verl_trgrpo.cli import demonstration

_EPILOG = """\
examples:
  verl-trgrpo search demo                        TR-GRPO
  verl-trgrpo search demo algorithm=grpo         the baseline, everything else equal
  verl-trgrpo search demo --seed 1 trainer.total_training_steps=10

A second time the same command finds everything in place and only shows the result.
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "demo",
        help="train a tiny model to search, on a CPU, in minutes",
        description="Invent a world, index its documents, serve them, and train the tiny model that ships with the "
        "package to answer questions about them with one or two searches, through veRL (Ray, FSDP2, vLLM). Further "
        "arguments are Hydra overrides on the configuration search_demo.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demonstration.add_arguments(parser, "runs/search_demo")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.tiny.search import CHECKPOINT
    from verl_trgrpo.tiny.search.demo import example_trajectory, prepare
    from verl_trgrpo.tiny.search.server import retrieval_server

    out = arguments.out
    built = prepare(out, seed=0)
    print(f"questions and index: {out} ({'built' if built else 'already there'})", file=sys.stderr)
    with retrieval_server(out / "index", out / "server.log") as url:
        print(f"server: {url} (log: {out / 'server.log'})", file=sys.stderr)
        address = f"actor_rollout_ref.rollout.custom.search.url={url}"
        run_dir = demonstration.train(arguments, "search_demo", CHECKPOINT, "search", [address])
    example = example_trajectory(run_dir / "validation", arguments.seed)
    if example is not None:
        print(f"\na response of step {example['step']} (score {example['score']:g}):\n")
        print(example["input"].strip())
        print(example["output"].strip())
    return 0
