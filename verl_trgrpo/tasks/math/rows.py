"""Build DeepScaleR's train set and test sets for veRL: a Parquet file for each and ``manifest.json``.

The rows come from the Hugging Face hub, a directory, or a file. docs/data.md says what is known of the places on the hub.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from verl_trgrpo.common.findings import findings_of
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data.rows import arrow_schema, build_row
from verl_trgrpo.data.sources import (
    NOT_DRAWN,
    Record,
    SourceFiles,
    draw,
    find_source_files,
    has_test_name,
    load_hub,
    parse_records,
    plain_name,
    read_records,
    stem_of,
    warn_of_test_files,
)
from verl_trgrpo.judge.equality import is_rounded
from verl_trgrpo.tasks.data_set import BuilderOptions
from verl_trgrpo.tasks.math.problems import (
    CONTRADICTED,
    REPEATED,
    OutOfChoicesError,
    Problem,
    ProblemColumns,
    find_repetitions,
    problem_of,
)
from verl_trgrpo.tasks.math.unread import UnreadColumns

if TYPE_CHECKING:
    import pyarrow as pa

BOXED_INSTRUCTION = r"Let's think step by step and output the final answer within \boxed{}."
"""The instruction that DeepScaleR's models were trained and tested with, appended to each problem after one space
(github.com/agentica-project/rllm, commit 874daa4acb7f, scripts/data/deepscaler_dataset.py)."""


@dataclass(frozen=True)
class HubData:
    """Place of a set on the hub."""

    dataset: str
    revision: str
    split: str
    configuration: str | None = None


_TRAIN = "deepscaler"
_TEST = "test"
"""A test file that is none of the sets, as the user's own; its rows have the data source of the train rows."""

# Problems of each test set. A file with more is another one, such as train problems from earlier years.
_SIZES = {"aime2024": 30, "amc2023": 83, "math500": 500, "minerva": 272, "olympiad_bench": 675, "svamp": 1000}

# Share of the rows with the number of choices as the answer above which the choices are counted from 1, not a row wrong.
_FROM_ONE = 0.05

# By name, which is also the `data_source`: the name in DeepScaleR's files, and the place on the hub.
_SETS = {
    _TRAIN: (
        "deepscaler",
        HubData("agentica-org/DeepScaleR-Preview-Dataset", "b6ae8c60f5c1f2b594e2140b91c49c9ad0949e29", "train"),
    ),
    "aime2024": ("aime", HubData("HuggingFaceH4/aime_2024", "2fe88a2f1091d5048c0f36abc874fb997b3dd99a", "train")),
    "amc2023": ("amc", HubData("AI-MO/aimo-validation-amc", "8ef249608d65c2de7763ca7525f438e540ba285e", "train")),
    "math500": ("math", HubData("HuggingFaceH4/MATH-500", "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be", "test")),
    "minerva": ("minerva", HubData("math-ai/minervamath", "ee46ddc498933b1977577953250ca5c66be64f96", "test")),
    "olympiad_bench": (
        "olympiad_bench",
        HubData("Hothan/OlympiadBench", "3b426ee1d587c71b495146dde9f3e995ee7ac59f", "train", "OE_TO_maths_en_COMP"),
    ),
    "svamp": ("SVAMP", HubData("ChilleD/SVAMP", "5e0bf1e5e7c0e9c4bc39180d224f41f3f801b7ef", "test")),
}
# Not one of DeepScaleR's, so of the hub on request alone.
_ASKED_FOR = {"svamp"}


@dataclass(frozen=True, kw_only=True)
class DeepscalerOptions(BuilderOptions):
    """Contents of a DeepScaleR data set.

    Args:
        source: hf (the Hugging Face hub), a directory with a file for each set, or one file: that of a test set if it has
            the name of one (aime.json) and is not in a directory named train, otherwise of train problems, or of test
            problems if its name says so (my_test.json, held_out.json).
        sets: which to build, of deepscaler, aime2024, amc2023, math500, minerva, olympiad_bench and svamp; all of the source
            if left out, without svamp of the hub.
        problem_column: column with the problems, where it has none of the usual names (docs/data.md).
        answer_column: column with the answers, likewise.
        choices_column: columns with one choice each, the right one among them, or a column that has all of them, likewise.
        context_column: column with the passage that the problem is about, likewise.
        limit: at most this many rows per file, drawn with the seed; all if left out.
        instruction: appended to each problem; empty for none.
        natural_log: ``\\log`` without a base is the natural logarithm in this source, but for problems that name base 10.
    """

    source: str = "hf"
    sets: tuple[str, ...] = ()
    problem_column: str = ""
    answer_column: str = ""
    choices_column: tuple[str, ...] = ()
    context_column: str = ""
    limit: Annotated[int | None, "[1, inf)"] = None
    instruction: str = BOXED_INSTRUCTION
    natural_log: bool = False

    def problems(self) -> list[str]:
        """Return a message if the source lacks a set."""
        return [finding.message for finding in findings_of(self.places, "")]

    def places(self) -> tuple[dict[str, Path | HubData], dict[str, str]]:
        """Return the places of the sets to build, and the files that are not read, with the reasons.

        Raises:
            ValueError: the source has none, or lacks one that is asked for.
        """
        files = None if self.source == "hf" else find_math_files(Path(self.source), self.out)
        available: dict[str, Any] = files.single() if files else {name: hub for name, (_, hub) in _SETS.items()}
        asked = [_set_named(word) or word for word in self.sets]
        asked = asked or [name for name in available if files or name not in _ASKED_FOR]
        if missing := [name for name in asked if name not in available]:
            raise ValueError(f"{self.source} has no {', '.join(missing)}; choose sets from {', '.join(available)}")
        found = {name: available[name] for name in (*_SETS, _TEST) if name in asked}
        return found, files.unused(found.values()) if files else {}


def build_deepscaler(options: DeepscalerOptions, progress: Progress = no_progress) -> dict[str, Any] | None:
    """Write DeepScaleR's train set and five test sets as Parquet files for veRL, with manifest.json.

    examples:
      verl-trgrpo data build deepscaler --out data/deepscaler                                  from the hub
      verl-trgrpo data build deepscaler --out data/deepscaler --source downloads/deepscaler    from a directory
      verl-trgrpo data build deepscaler --out data/probe --sets math500 minerva --limit 50 --instruction ''

    notes:
      Test sets are AIME 2024, AMC 2023, MATH-500, Minerva and OlympiadBench, and on request SVAMP (--sets svamp).
      All files have one schema. A ground truth is a list of strings of which any is right.
      Within a set, a problem that occurs again with the same answer is dropped; if the answers differ, all its copies
      are. Rows without an answer or with one that cannot be read are dropped, too. All are counted.
      A source directory has a file for each set: deepscaler, aime or aime2024, amc or amc2023, math, math500 or MATH-500,
      minerva, olympiad_bench, svamp (.json, .jsonl, .jsonl.gz, .parquet, .arrow; in any case, with _, - or neither),
      not in a directory named train; or copies of the hub's repositories. Other files are a warning.
      The download was not run against the hub itself so far; if it fails, download the sets and give --source.

    Returns:
        the manifest, None if the data set is there already; see `DataSet`.

    Raises:
        ValueError: the source cannot be read, no row of a set can be used, or the directory cannot be written.
    """
    places, left_out = options.places()
    files = {name: place for name, place in places.items() if isinstance(place, Path)}
    warn_of_test_files([file for name, file in files.items() if name == _TRAIN])
    data_set = options.data_set(
        "deepscaler",
        "deepscaler",
        inputs=files,
        libraries=["datasets"] if options.source == "hf" else [],
        left_out=left_out,
        sets=[*places] if options.sets else [],
        hub={name: asdict(place) for name, place in places.items() if isinstance(place, HubData)},
    )
    if data_set.is_there():
        return None
    splits, found = {}, {}
    for name, place in places.items():
        problems, found[name] = choose_problems(name, place, options, progress)
        splits["train" if name == _TRAIN else name] = [_row(each, name, options) for each in problems]
    return data_set.write(splits, math_schema(), found)


def choose_problems(
    name: str, place: Path | HubData, options: DeepscalerOptions, progress: Progress = no_progress
) -> tuple[list[Problem], dict[str, Any]]:
    """Return the problems of a set that become rows, and the counts of its source."""
    columns = ProblemColumns(
        options.problem_column, options.answer_column, options.choices_column, options.context_column
    )
    unread, from_one = UnreadColumns(), list[str]()

    def read_problem(record: Record) -> Problem:
        try:
            return problem_of(record, columns)
        except OutOfChoicesError:
            from_one.append(record.origin)
            raise

    read = parse_records(unread.watch(progress(_read_set(place), None, name)), read_problem)
    unread.check(read.missed, [each.text for each in read.items], columns)
    if len(from_one) > _FROM_ONE * len(read.items):
        raise ValueError(
            f"{from_one[0]} and {len(from_one) - 1} more rows have the number of choices as the answer, so their choices are "
            "counted from 1; subtract 1 from the answers in a copy of the source"
        )
    repeated = find_repetitions(read.items)
    rest = [problem for position, problem in enumerate(read.items) if position not in repeated]
    if len(rest) > _SIZES.get(name, len(rest)):
        raise ValueError(
            f"{place}: {len(rest)} different problems, but {name} has {_SIZES[name]}; rename the file, or put this file alone "
            "into a directory named train if it is for training"
        )
    if not rest:
        others = f"; the questions may be in {', '.join(read.unread)}, of which --problem-column names one" * bool(
            read.unread
        )
        raise ValueError(f"{place}: {len(repeated)} rows have one problem with different answers{others}")
    chosen = draw(rest, options.limit, f"deepscaler/{name}/{options.seed}")
    dropped = {reason: [*repeated.values()].count(reason) for reason in (REPEATED, CONTRADICTED)}
    dropped |= {NOT_DRAWN: len(rest) - len(chosen)}
    return chosen, read.counts(len(chosen), dropped)


def _row(problem: Problem, name: str, options: DeepscalerOptions) -> dict[str, Any]:
    between = "\n" if problem.ends_in_choices else " "  # the instruction is not a part of the last choice
    return build_row(
        data_source=_TRAIN if name == _TEST else name,
        prompt=[
            *([{"role": "system", "content": problem.system}] if problem.system else []),
            {"role": "user", "content": f"{problem.text}{between}{options.instruction}".strip()},
        ],
        ability="math",
        ground_truth=problem.answers,
        extra_info={
            "question": problem.text,
            "origin": problem.origin,
            "rounded_gold": is_rounded(problem.answers),
            "natural_log": options.natural_log,
        },
    )


def math_schema() -> "pa.Schema":
    """Return the Arrow schema of all sets; veRL concatenates only files of equal types."""
    import pyarrow as pa

    return arrow_schema(
        [
            pa.field("question", pa.string()),
            pa.field("origin", pa.string()),
            pa.field("rounded_gold", pa.bool_()),
            pa.field("natural_log", pa.bool_()),
        ],
        ground_truth=pa.list_(pa.string()),  # also if all rows have one answer
    )


def find_math_files(source: Path, out: Path) -> SourceFiles:
    """Return the files of a directory by set, or the one that `source` is; `out` is the directory to build.

    A file belongs to the set that its name is one of, or in whose data set on the hub it is. In a directory named train, or one
    below it, are train files only: what has the name of a test set there is left out of a directory. A file that is given alone
    and belongs to no test set has train problems, or test problems if its name says so.

    Raises:
        ValueError: there are none.
    """
    alone = source.is_file()

    def part_of(shown: Path) -> str:
        file = source if alone else source / shown
        name = _hub_set(file) or (_set_named(stem_of(file)) if len(shown.parts) == 1 else "")
        # rllm has train problems of earlier years in train/math/aime.json.
        if name != _TRAIN and "train" in file.resolve().parts[-3:-1]:
            name = ""
        if not name and alone:
            return _TEST if has_test_name(file) else _TRAIN
        return name

    named = "files named deepscaler, " + ", ".join(f"{name} or {raw}" for name, (raw, _) in [*_SETS.items()][1:])
    return find_source_files(source, out, part_of, f"{named} (such as deepscaler.json), no test set below train")


def _set_named(word: str) -> str:
    """Return the set with a name, its own, that of DeepScaleR's file or of the hub's data set, in any spelling; "" for none."""
    names = {name: {name, raw, hub.dataset.partition("/")[2]} for name, (raw, hub) in _SETS.items()}
    return next((name for name, known in names.items() if plain_name(word) in map(plain_name, known)), "")


def _hub_set(file: Path) -> str:
    """Return the set of a file by the directories that it is in: of a data set on the hub, with its split and configuration."""
    for name, (_, place) in _SETS.items():
        inside = file.absolute().parts[-6:-1]
        words = re.findall("[A-Za-z0-9_]+", "/".join(file.parts[-2:]))
        other_split = {"train", "test", "validation"} & {*words} - {place.split}
        right = place.configuration in (None, *words) and (place.split in words or not other_split)
        if right and {place.dataset.partition("/")[2], _cached(place)} & {*inside}:
            return name
    return ""


def _cached(place: HubData) -> str:
    """Return the directory of a data set in the hub's cache."""
    return f"datasets--{place.dataset.replace('/', '--')}"


def _read_set(place: Path | HubData) -> Iterator[Record]:
    if isinstance(place, Path):
        return read_records(place)
    return load_hub(place.dataset, place.revision, place.split, place.configuration)
