"""What the small language model can be trained on."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from verl_trgrpo.data.build import DataSet, build_data_set
from verl_trgrpo.small_lm import puzzles, word_problem_dataset
from verl_trgrpo.tiny.training import Demonstration


class Task(NamedTuple):
    """A task of the small language model.

    builder: name of the data set's builder.
    arguments: what the data set depends on.
    make_data_set: makes it.
    words: of the command that builds it, after ``verl-trgrpo small-lm``.
    libraries: that it depends on.
    demonstrations: what the warm start learns, by seed.
    adapter: the warm start's result, shipped; `python -m verl_trgrpo.small_lm.warm_start` makes it again.
    config_name: primary configuration of a training through veRL.
    """

    builder: str
    arguments: Mapping[str, int]
    make_data_set: Callable[[], DataSet]
    words: tuple[str, ...]
    libraries: tuple[str, ...]
    demonstrations: Callable[[int], list[Demonstration]]
    adapter: Path
    config_name: str

    def build_dataset(self, directory: Path) -> bool:
        """Write ``train.parquet``, ``test.parquet`` and a manifest, or find them there; return whether they were built.

        Raises:
            ValueError: the directory cannot be written or has data files of another origin.
        """
        command = ["verl-trgrpo", "small-lm", *self.words]
        manifest = build_data_set(
            self.builder, directory, self.arguments, self.make_data_set, command=command, libraries=self.libraries
        )
        return manifest is not None


_ADAPTERS = Path(__file__).parent / "adapters"

TASKS: dict[str, Task] = {
    "word_problems": Task(
        "small-lm",
        word_problem_dataset.ARGUMENTS,
        word_problem_dataset.make_data_set,
        (),
        ("reasoning-gym",),
        word_problem_dataset.warm_start_demonstrations,
        _ADAPTERS / "word_problems",
        "small_lm",
    ),
    "puzzles": Task(
        "small-lm-puzzles",
        puzzles.ARGUMENTS,
        puzzles.make_data_set,
        ("--task", "puzzles"),
        ("reasoning-gym", "numpy"),
        puzzles.warm_start_demonstrations,
        _ADAPTERS / "puzzles",
        "small_lm_puzzles",
    ),
}
