"""What the small language model can be trained on."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from verl_trgrpo.data.write import DataFile, write_dataset
from verl_trgrpo.small_lm import puzzles, word_problem_dataset
from verl_trgrpo.tiny.training import Demonstration


class Task(NamedTuple):
    """A task of the small language model.

    builder: name of the data set's builder.
    arguments: what the data set depends on.
    data_files: yields its files.
    schema: of its files.
    words: of the command that builds it, after ``verl-trgrpo small-lm``.
    libraries: that it depends on.
    demonstrations: what the warm start learns, by seed.
    adapter: the warm start's result, shipped; `python -m verl_trgrpo.small_lm.warm_start` makes it again.
    config_name: primary configuration of a training through veRL.
    """

    builder: str
    arguments: Mapping[str, int]
    data_files: Callable[[], Iterator[DataFile]]
    schema: pa.Schema
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
        manifest = write_dataset(
            directory,
            self.data_files(),
            self.schema,
            builder=self.builder,
            made_from=self.arguments,
            command=command,
            libraries=self.libraries,
            replace_other=True,
        )
        return manifest is not None


_ADAPTERS = Path(__file__).parent / "adapters"

TASKS: dict[str, Task] = {
    "word_problems": Task(
        "small-lm",
        word_problem_dataset.ARGUMENTS,
        word_problem_dataset.data_files,
        word_problem_dataset.SCHEMA,
        (),
        ("reasoning-gym",),
        word_problem_dataset.warm_start_demonstrations,
        _ADAPTERS / "word_problems",
        "small_lm",
    ),
    "puzzles": Task(
        "small-lm-puzzles",
        puzzles.ARGUMENTS,
        puzzles.data_files,
        puzzles.SCHEMA,
        ("--task", "puzzles"),
        ("reasoning-gym", "numpy"),
        puzzles.warm_start_demonstrations,
        _ADAPTERS / "puzzles",
        "small_lm_puzzles",
    ),
}
