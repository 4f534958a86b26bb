"""Build DeepScaleR's train set and test sets for veRL: a parquet file for each and ``manifest.json``."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data import schema
from verl_trgrpo.data.build import BuilderOptions, DataSet, counts, limit_problems
from verl_trgrpo.data.sources import NOT_DRAWN, draw, parse_records, warn_of_test_files
from verl_trgrpo.tasks.math.rows import CONTRADICTED, REPEATED, Problem, find_repetitions, read_problem
from verl_trgrpo.tasks.math.sources import SETS, TRAIN, HubData, find_sources, read_set

NO_ANSWER = "the row has no answer"

INSTRUCTION = r"Let's think step by step and output the final answer within \boxed{}."
"""What DeepScaleR's models were trained and tested with: appended to each problem after one space
(github.com/agentica-project/rllm, commit 874daa4acb7f, scripts/data/deepscaler_dataset.py)."""

ARROW_SCHEMA = schema.arrow_schema(
    [pa.field("question", pa.string()), pa.field("origin", pa.string())],
    # For every set, also where all rows have one answer: veRL can only concatenate files of equal types.
    ground_truth=pa.list_(pa.string()),
)


@dataclass(frozen=True, kw_only=True)
class DeepscalerOptions(BuilderOptions):
    """What to build.

    Args:
        source: hf (the Hugging Face hub), a directory with a file for each set, or one file: that of a test set where it
            has the name of one (aime.json), otherwise of train problems.
        sets: which to build, of deepscaler, aime2024, amc2023, math500, minerva and olympiad_bench; all that the source
            has if left out.
        limit: at most this many rows per file, drawn with the seed; all if left out.
        instruction: appended to each problem; empty for none.
    """

    source: str = "hf"
    sets: tuple[str, ...] = ()
    limit: int | None = None
    instruction: str = INSTRUCTION

    def problems(self) -> list[str]:
        """Return what is wrong with the fields above."""
        problems = limit_problems(self.limit)
        try:
            self.places()
        except ValueError as error:
            problems.append(str(error))
        return problems

    def places(self) -> dict[str, Path | HubData]:
        """Return where the sets to build are. Raises ValueError where the source has none, or lacks one asked for."""
        available = find_sources(self.source)
        if missing := [name for name in self.sets if name not in available]:
            raise ValueError(f"{self.source} has no {', '.join(missing)}; choose sets from {', '.join(available)}")
        return {name: available[name] for name in SETS if name in (self.sets or available)}


def build(options: DeepscalerOptions, progress: Progress = no_progress) -> dict[str, Any] | None:
    """Build the data set, or find it already built with the same arguments; see `build_data_set`.

    Raises ValueError for a source that cannot be read, malformed rows, or an output directory that cannot be written.
    """
    places = options.places()
    warn_of_test_files([place for name, place in places.items() if name == TRAIN and isinstance(place, Path)])
    return options.build(
        "deepscaler",
        lambda: _make(options, places, progress),
        inputs={name: place for name, place in places.items() if isinstance(place, Path)},
        libraries=["datasets"] if options.source == "hf" else [],
        hub={name: asdict(place) for name, place in places.items() if isinstance(place, HubData)},
    )


def build_prompt(problem: str, options: DeepscalerOptions) -> list[dict[str, str]]:
    """Return the chat messages ``{"role": ..., "content": ...}`` that ask for the answer of `problem`."""
    return [{"role": "user", "content": f"{problem} {options.instruction}".strip()}]


def _make(options: DeepscalerOptions, places: Mapping[str, Path | HubData], progress: Progress) -> DataSet:
    found, files = {}, {}
    for name, place in places.items():
        read = list(parse_records(progress(read_set(place), None, name), read_problem))
        problems = [problem for problem in read if problem.answers]
        repeated = find_repetitions(problems)
        rest = [problem for position, problem in enumerate(problems) if position not in repeated]
        chosen = draw(rest, options.limit, f"deepscaler/{name}/{options.seed}")
        dropped = {reason: [*repeated.values()].count(reason) for reason in (REPEATED, CONTRADICTED)}
        dropped |= {NO_ANSWER: len(read) - len(problems), NOT_DRAWN: len(rest) - len(chosen)}
        found[name] = counts(len(chosen), dropped)
        file = "train" if name == TRAIN else name
        files[file] = [_row(options, name, problem) for problem in chosen]
    return DataSet(files, ARROW_SCHEMA, found)


def _row(options: DeepscalerOptions, name: str, problem: Problem) -> dict[str, Any]:
    return schema.build_row(
        data_source=name,
        prompt=build_prompt(problem.text, options),
        ability="math",
        ground_truth=problem.answers,
        extra_info={"question": problem.text, "origin": problem.origin},
    )
