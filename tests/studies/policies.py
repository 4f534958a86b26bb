"""Rollouts of the tiny model, and a model of two layers whose gradients at them are quick to compute."""

from pathlib import Path

import pandas
import pytest

from studies.gradients.token_gradients import GradientOptions
from studies.rollouts import load_policy, sample_rollouts
from verl_trgrpo.common.progress import no_progress
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles, puzzle_row

SIZES = {"prompts": 3, "samples": 4, "max_tokens": 40, "seed": 1}


def options(data, **changes):
    return GradientOptions(model=str(CHECKPOINT), out=Path("unused"), data=data, **{**SIZES, **changes})


def command(data, out, *more, **changes):
    """Return words for a program of `studies/gradients` with the same sizes as `options`."""
    sizes = [
        word for name, value in {**SIZES, **changes}.items() for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return ["--model", str(CHECKPOINT), "--data", str(data), "--out", str(out), *sizes, *more]


def write_puzzles(path, count):
    """Write veRL rows of so many puzzles."""
    rows = [puzzle_row(puzzle, terse=True, extra_info=()) for puzzle in generate_puzzles(3, count, seed=5)]
    for index, row in enumerate(rows):
        row["extra_info"] = {"index": index, "split": "train"}
    pandas.DataFrame(rows).to_parquet(path)
    return path


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return write_puzzles(tmp_path_factory.mktemp("puzzles") / "train.parquet", 6)


@pytest.fixture(scope="session")
def policy():
    return load_policy(CHECKPOINT, "cpu")


@pytest.fixture(scope="session")
def rollouts(policy, data):
    return sample_rollouts(*policy, options(data), no_progress)


@pytest.fixture(scope="session")
def two_layers():
    model = load_policy(CHECKPOINT, "cpu")[1]
    del model.model.layers[2:]
    model.config.num_hidden_layers = 2
    return model
