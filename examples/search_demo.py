"""Train a tiny model to answer questions with one or two searches, with veRL (Ray, FSDP2, vLLM), on a CPU: ``make search-demo``.

examples, from a checkout:
  python -m examples.search_demo                    TR-GRPO
  python -m examples.search_demo algorithm=grpo     the baseline, everything else equal
  python -m examples.search_demo --seed 1 trainer.total_training_steps=10

notes:
  The questions are about an invented world, whose documents are indexed and served during the training.
  OVERRIDES change the recipe search_demo.yaml.
  The same command, repeated, shows the result of the finished run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tyro  # noqa: F401  an inherited field is annotated with it

from examples.search_world import CHECKPOINT, prepare, server_process
from verl_trgrpo.cli.quickstart import QuickstartOptions, note, note_data, train_demonstration
from verl_trgrpo.common.options import exit_code, parse_options

RECIPE = Path(__file__).with_name("search_demo.yaml")


@dataclass(frozen=True)
class SearchDemoOptions(QuickstartOptions):
    """Select directory and seed."""

    out: Path = Path("runs/search_demo")


def search_demo(options: SearchDemoOptions) -> int:
    """Build data and index, serve it, and train; return the exit code."""
    out = options.out
    note_data("questions and index", out, prepare(out, seed=0))
    with server_process(out / "index", out / "server.log") as (_, url):
        note(f"server: {url} (log: {out / 'server.log'})")
        address = f"actor_rollout_ref.rollout.custom.search.url={url}"
        train_demonstration(options, out, RECIPE, CHECKPOINT, "search", address)
    return 0


def main(argv: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    return search_demo(parse_options(SearchDemoOptions, "python -m examples.search_demo", __doc__ or "", argv))


if __name__ == "__main__":
    sys.exit(exit_code(partial(main, sys.argv[1:])))
