"""Build the checkpoint of the tiny model: ``python -m verl_trgrpo.tiny.puzzles.warm_start --out DIR --seed 0``.

Same options, machine and versions of the libraries give the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.tiny.puzzles import warm_start_command
from verl_trgrpo.tiny.puzzles.accuracy import measure_accuracy
from verl_trgrpo.tiny.puzzles.checkpoint_files import build_checkpoint
from verl_trgrpo.tiny.puzzles.training import WarmStartOptions, train

HELP = {
    "puzzles": "different puzzles per number of people (with two there are fewer)",
    "test_puzzles": "held-out puzzles per number of people to measure the accuracy on",
    "most_people": "puzzles have two to this many people: 3 or 4",
}


def build(out: Path, options: WarmStartOptions, force: bool = False, progress: Progress = no_progress) -> bool:
    """Train the model and write checkpoint, tokenizer and ``manifest.json`` to `out`; see `build_checkpoint`.

    Sets torch's global seed and number of threads.
    """
    return build_checkpoint(
        out,
        module="verl_trgrpo.tiny.puzzles.warm_start",
        arguments=asdict(options),
        libraries=("torch", "transformers", "tokenizers", "reasoning-gym"),
        train=lambda: train(options, progress),
        measure=lambda directory: measure_accuracy(directory, options.test_puzzles, options.seed, options.sizes),
        force=force,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code, see `warm_start_command.run`."""
    return warm_start_command.run(
        argv,
        module="verl_trgrpo.tiny.puzzles.warm_start",
        description="Train the tiny model of the quickstart on puzzle demonstrations, and write checkpoint, tokenizer "
        "and manifest.json to DIR. Same options, machine and library versions give the same bytes.",
        options_class=WarmStartOptions,
        help_texts=HELP,
        build=build,
    )


if __name__ == "__main__":
    sys.exit(main())
