"""``verl-trgrpo search demo``: a tiny model learns to search, with a real index, server and multi-turn training."""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

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
    from verl_trgrpo.tiny.search_dataset import prepare
    from verl_trgrpo.tiny.search_server import retrieval_server

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


def example_trajectory(generations: Path, seed: int = 0) -> dict[str, Any] | None:
    """Return a response of the latest validation, or None where there is none.

    It is a right one with the most searches, or where none is right any one with the most searches.

    Args:
        generations: directory of veRL's validation dumps, a file ``STEP.jsonl`` for each, with ``input``, ``output`` and
            ``score`` per line.
        seed: chooses among equals.

    Returns:
        the line, and the step under ``step``.
    """
    steps = [int(path.stem) for path in generations.glob("*.jsonl") if path.stem.isdecimal()]
    if not steps:
        return None
    # A line ends at a line feed only: the text may hold other separators.
    lines = (generations / f"{max(steps)}.jsonl").read_text(encoding="utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    right = [row for row in rows if row["score"] == 1] or rows
    most = max((row["output"].count("</search>") for row in right), default=0)
    candidates = [row for row in right if row["output"].count("</search>") == most]
    return {**random.Random(seed).choice(candidates), "step": max(steps)} if candidates else None
