"""What a Knights-and-Knaves data set is to contain."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.data.command import common_problems
from verl_trgrpo.tasks.knights_and_knaves.prompts import PROMPT_STYLES
from verl_trgrpo.tasks.knights_and_knaves.puzzles import DISTINCT_PUZZLES, MAX_PEOPLE, MIN_PEOPLE
from verl_trgrpo.tasks.knights_and_knaves.sources import HUB_DATASET, HUB_REVISION, Size, source_files

# The merge that the TR-GRPO paper trains on: arXiv 2511.00066.
PAPER_PEOPLE = (3, 4, 5, 6, 7)
PAPER_TRAIN = 900
PAPER_TEST = 100


@dataclass(frozen=True)
class KkDatasetOptions:
    """What to build.

    out: directory for the files.
    people: the numbers of people, each from 2 to 8.
    train, test: how many puzzles for each number of people, at least 1; None, with a source that is not generated: all
        there are. `test` may be None only where the source has test puzzles of its own.
    mix: pairs (number of people, train puzzles) in place of `people` and `train`.
    paper: the paper's merge in place of `people`, `train`, `test` and `mix`; at most that many from files and the hub.
    at_most: `train` and `test` are upper bounds: where a source has fewer puzzles after repeats are dropped, take these.
    seed: any integer.
    source: ("generate",), ("hf",) or paths of files and directories in the public format (see `sources.source_files`).
    test_source: with files, further paths to take the test puzzles from.
    hf_dataset, revision: with "hf", the name or local directory of the data set, and its commit, branch or tag.
    prompt, system: see `prompts.build_prompt`.
    test_per_size: write ``test_<n>ppl.parquet`` for each number of people, too.
    with_reasoning: write ``sft_train.parquet`` and ``sft_test.parquet`` with worked responses, too.
    limit, num_proc, on_error, force: see `command.add_common_arguments`.

    Raises ValueError that lists everything that is wrong.
    """

    out: Path
    people: tuple[int, ...] = ()
    train: int | None = None
    test: int | None = None
    mix: tuple[tuple[int, int], ...] = ()
    paper: bool = False
    at_most: bool = False
    seed: int = 0
    source: tuple[str, ...] = ("generate",)
    test_source: tuple[str, ...] = ()
    hf_dataset: str = HUB_DATASET
    revision: str = HUB_REVISION
    prompt: str = "paper"
    system: bool = False
    test_per_size: bool = False
    with_reasoning: bool = False
    limit: int | None = None
    num_proc: int = 1
    on_error: str = "raise"
    force: bool = False

    def __post_init__(self) -> None:
        problems = [*self._size_problems(), *self._source_problems()]
        if self.prompt not in PROMPT_STYLES:
            problems.append(f"prompt is {self.prompt!r}; choose one of {', '.join(PROMPT_STYLES)}")
        elif self.prompt == "short" and self.system:
            problems.append("prompt 'short' has no instructions for a system message; leave system out")
        raise_problems([*problems, *common_problems(self.limit, self.num_proc, self.on_error)])

    @property
    def kind(self) -> str:
        """Return "generate", "hf" or "files"."""
        return self.source[0] if self.source in (("generate",), ("hf",)) else "files"

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Return what is asked for of each number of people."""
        if self.paper:
            return tuple(Size(n_people, PAPER_TRAIN, PAPER_TEST) for n_people in PAPER_PEOPLE)
        if self.mix:
            return tuple(Size(n_people, train, self.test) for n_people, train in self.mix)
        return tuple(Size(n_people, self.train, self.test) for n_people in self.people)

    @property
    def fewer_allowed(self) -> bool:
        """Return whether the counts are upper bounds."""
        return self.at_most or (self.paper and self.kind != "generate")

    @property
    def files(self) -> tuple[list[Path], list[Path]]:
        """Return the files to read and those to read the test puzzles from; both empty unless `kind` is "files"."""
        return source_files(self.source, self.test_source) if self.kind == "files" else ([], [])

    def _size_problems(self) -> list[str]:
        problems = []
        people = [size.n_people for size in self.sizes]
        given = {"people": self.people, "train": self.train, "test": self.test, "mix": self.mix}
        doubled = [name for name, value in given.items() if value not in ((), None)]
        if self.paper and doubled:
            problems.append(f"paper chooses sizes and counts; leave out {', '.join(doubled)}")
        elif self.mix and (self.people or self.train is not None):
            problems.append("mix takes the place of people and train; leave these out")
        if not people or not all(MIN_PEOPLE <= n_people <= MAX_PEOPLE for n_people in people):
            problems.append(f"people is {people}; give one or more numbers from {MIN_PEOPLE} to {MAX_PEOPLE}")
        if len(set(people)) < len(people):
            problems.append(f"people is {people}; give each number once")
        for split in ("train", "test"):
            counts = {getattr(size, split) for size in self.sizes}
            problems += [
                f"{split} is {count}; ask for at least 1 puzzle per number of people"
                for count in sorted(counts - {None})
                if count < 1
            ]
            if None in counts and self.kind == "generate":
                problems.append(f"{split} is missing; say how many puzzles per number of people to generate")
        if self.kind == "generate":
            problems += [problem for size in self.sizes for problem in _too_many(size)]
        return problems

    def _source_problems(self) -> list[str]:
        problems = []
        if not self.source or (len(self.source) > 1 and {"generate", "hf"} & set(self.source)):
            problems.append(f"source is {list(self.source)}; give 'generate', 'hf' or one or more files")
        else:
            problems += self._file_problems()
        if self.test_source and self.kind != "files":
            problems.append(f"test_source goes with files only, but source is {self.kind!r}; leave it out")
        if self.at_most and self.kind == "generate":
            problems.append("at_most goes with a source, but puzzles are generated in any number; leave it out")
        given = {"hf_dataset": self.hf_dataset != HUB_DATASET, "revision": self.revision != HUB_REVISION}
        if self.kind != "hf":
            problems += [
                f"{name} goes with source 'hf' only, but it is {self.kind!r}; leave it out"
                for name in given
                if given[name]
            ]
        return problems

    def _file_problems(self) -> list[str]:
        try:
            _, test_files = self.files
        except ValueError as error:
            return [f"source {error}"]
        if self.kind == "files" and not test_files and None in {size.test for size in self.sizes}:
            return ["test is missing; say how many puzzles of the source are for testing, or give a test_source"]
        return []


def _too_many(size: Size) -> Sequence[str]:
    asked = (size.train or 0) + (size.test or 0)
    if asked <= DISTINCT_PUZZLES.get(size.n_people, asked):
        return []
    return [
        f"train {size.train} and test {size.test} make {asked}, but only {DISTINCT_PUZZLES[size.n_people]} different "
        f"puzzles with {size.n_people} people exist; ask for fewer or leave {size.n_people} out of people"
    ]
