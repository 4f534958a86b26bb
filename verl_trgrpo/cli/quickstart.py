"""``verl-trgrpo quickstart``: train a tiny model through veRL on two CPU cores."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from verl_trgrpo.common.options import Options
from verl_trgrpo.common.text import from_here, show


@dataclass(frozen=True)
class QuickstartOptions(Options):
    """Select directory and seed.

    Args:
        overrides: Hydra overrides, all before or all after the options.
        out: directory for data and runs.
        seed: seed of sampling and of the order of prompts.
    """

    overrides: tyro.conf.Positional[tuple[str, ...]] = ()
    out: Path = Path("runs/quickstart")
    seed: Annotated[int, "[0, inf)"] = 0


def quickstart(options: QuickstartOptions) -> int:
    """Train a tiny model on Knights-and-Knaves puzzles with veRL (Ray, FSDP2, vLLM), on a CPU, in minutes.

    examples:
      verl-trgrpo quickstart                        TR-GRPO
      verl-trgrpo quickstart algorithm=grpo         the baseline, everything else equal
      verl-trgrpo quickstart --seed 1 trainer.total_training_steps=10

    notes:
      The puzzles are generated. The model is part of the package; it was fine-tuned on the form of an answer.
      OVERRIDES change the configuration kk_quickstart.
      The same command, repeated, shows the result of the finished run.
    """
    from verl_trgrpo.demos.puzzles import CHECKPOINT, build_dataset

    note_data("puzzles", options.out / "data", build_dataset(options.out / "data"))
    run_dir = train_demonstration(options, options.out, "kk_quickstart", CHECKPOINT, "Knights-and-Knaves")
    other = "tr_grpo" if run_dir.name.startswith("grpo-") else "grpo"
    show(next_steps(options, other))
    return 0


def next_steps(options: QuickstartOptions, other: str) -> str:
    """Return what to do after a run, a command in each line: the `other` algorithm, a page of the runs, veRL itself."""
    place = shlex.quote(str(options.out))
    changed = [
        *(["--out", place] if options.out != QuickstartOptions.out else []),
        *(["--seed", str(options.seed)] if options.seed else []),
    ]
    return "\n".join(
        [
            "next",
            f"  the other algorithm   verl-trgrpo quickstart {' '.join([*changed, f'algorithm={other}'])}",
            f"  runs side by side     verl-trgrpo report {place}/*-seed*",
            "  your own veRL recipe  python -m verl.trainer.main_ppo +algorithm=tr_grpo ...",
        ]
    )


def train_demonstration(
    options: QuickstartOptions, out: Path, source: str | Path, model: Path, task: str, *more: str
) -> Path:
    """Train `model` on ``train.parquet`` and ``test.parquet`` in ``OUT/data``, and return the run directory.

    The `source` is a primary configuration or a recipe file, and `task` a name for the title of the curves. Overrides of the
    user win over `more`. examples/ outside the package trains so, too.
    """
    from verl_trgrpo.cli.runs import train_run
    from verl_trgrpo.runs.compose import run_overrides
    from verl_trgrpo.runs.overrides import chosen_value

    note(f"model: {from_here(model)}")
    data, algorithm = (out / "data").resolve(), chosen_value(options.overrides, "algorithm") or "tr_grpo"
    name = f"{algorithm}-seed{options.seed}"
    files = (data / "train.parquet", data / "test.parquet")
    own = run_overrides(*files, model, (out / name).resolve(), name, options.seed)
    overrides = [*own, *more, *options.overrides]
    return train_run(overrides, source, f"{algorithm} on {task}, seed {options.seed}")


def note(text: str) -> None:
    """Print a line about the progress."""
    show(text, sys.stderr)


def note_data(label: str, place: Path, built: bool) -> None:
    """Print where data are, and whether they were built."""
    note(f"{label}: {place} ({'built' if built else 'already there'})")
