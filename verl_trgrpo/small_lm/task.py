"""What the small language model can be trained on."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from verl_trgrpo.small_lm import puzzles, word_problem_dataset
from verl_trgrpo.tiny.training import Demonstration


class Task(NamedTuple):
    """A task of the small language model.

    build_dataset: writes train.parquet and test.parquet to a directory, or finds them there; returns whether they were built.
    demonstrations: what the warm start learns, by seed.
    adapter: the warm start's result, shipped; `python -m verl_trgrpo.small_lm.warm_start` makes it again.
    config_name: primary configuration of a training through veRL.
    """

    build_dataset: Callable[[Path], bool]
    demonstrations: Callable[[int], list[Demonstration]]
    adapter: Path
    config_name: str


_ADAPTERS = Path(__file__).parent / "adapters"

TASKS: dict[str, Task] = {
    "word_problems": Task(
        word_problem_dataset.build_dataset,
        word_problem_dataset.warm_start_demonstrations,
        _ADAPTERS / "word_problems",
        "small_lm",
    ),
    "puzzles": Task(
        puzzles.build_dataset, puzzles.warm_start_demonstrations, _ADAPTERS / "puzzles", "small_lm_puzzles"
    ),
}
