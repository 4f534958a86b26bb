"""Build DeepScaleR's train set and test sets for veRL: a parquet file for each and ``manifest.json``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from verl_trgrpo.common.options import command_line
from verl_trgrpo.common.progress import Progress, no_progress, parallel_map
from verl_trgrpo.data import schema
from verl_trgrpo.data.build import BuilderOptions, BuildPlan, BuildResult, Counts, DataFile, DataSet, build_data_set
from verl_trgrpo.data.sources import MALFORMED, NOT_DRAWN, Record, RowErrors, draw
from verl_trgrpo.tasks.math.prompts import INSTRUCTION, NO_INSTRUCTION, build_prompt
from verl_trgrpo.tasks.math.rows import CONTRADICTED, REPEATED, Problem, find_repetitions, read_problem
from verl_trgrpo.tasks.math.sources import SETS, SetSource, file_of, find_sources, split_of

NO_ANSWER = "the row has no answer"

ARROW_SCHEMA = schema.arrow_schema(
    [pa.field(name, pa.string()) for name in ("question", "origin", "level", "subject")],
    # For every set, also where all rows have one answer: veRL can only concatenate files of equal types.
    ground_truth=pa.list_(pa.string()),
)

Sourced = tuple[Problem, str]  # a problem and its origin


@dataclass(frozen=True, kw_only=True)
class DeepscalerOptions(BuilderOptions):
    """What to build.

    Args:
        source: hf (the Hugging Face hub), a directory with a file for each set, or one file: that of a test set where it
            has the name of one (aime.json), otherwise of train problems.
        sets: which to build, of deepscaler, aime2024, amc2023, math500, minerva and olympiad_bench; all that the source
            has if left out.
        hf_dataset: with source hf, other places of sets, each as SET=[REPO][@REVISION][:[CONFIGURATION/]SPLIT]; REPO may
            be a directory with a copy of a repository, REVISION a commit, branch or tag.
        instruction: appended to each problem; none for none.
        instruction_role: after the problem (user), or in a system message of its own (system).
    """

    source: str = "hf"
    sets: tuple[str, ...] = ()
    hf_dataset: tuple[str, ...] = ()
    instruction: str = INSTRUCTION
    instruction_role: Literal["user", "system"] = "user"

    def problems(self) -> list[str]:
        """Return what is wrong with the fields above."""
        problems = []
        if not self.instruction.strip():
            problems.append(f"instruction is empty; give a text, or {NO_INSTRUCTION!r}")
        if self.instruction_role not in ("user", "system"):
            problems.append(f"instruction_role is {self.instruction_role!r}; choose user or system")
        if self.source != "hf" and self.hf_dataset:
            problems.append(f"hf_dataset goes with source 'hf' only, but it is {self.source!r}; leave it out")
        try:
            self.sources()
        except ValueError as error:
            problems.append(str(error))
        return problems

    def sources(self) -> dict[str, SetSource]:
        """Return the sets to build. Raises ValueError where the source has none, or lacks one that is asked for."""
        available = find_sources(self.source, self.hf_dataset)
        if missing := [name for name in self.sets if name not in available]:
            raise ValueError(f"{self.source} has no {', '.join(missing)}; choose sets from {', '.join(available)}")
        return {name: available[name] for name in SETS if name in (self.sets or available)}


def build(options: DeepscalerOptions, progress: Progress = no_progress) -> BuildResult:
    """Build the data set, or find it already built with the same arguments; see `build_data_set`.

    Raises ValueError for a source that cannot be read, malformed rows, or an output directory that cannot be written.
    """
    sources = options.sources()
    plan = BuildPlan(
        builder="deepscaler",
        out=options.out,
        arguments={
            "sources": {name: source.identity() for name, source in sources.items()},
            "instruction": options.instruction,
            "instruction_role": options.instruction_role,
            "limit": options.limit,
            "seed": options.seed,
            "on_error": options.on_error,
        },
        command=command_line("python data_prep/deepscaler.py", options),
        libraries=["datasets"] if options.source == "hf" else [],
        inputs=[file for source in sources.values() for file in source.files()],
        force=options.force,
    )
    return build_data_set(plan, lambda: _make(options, sources, progress))


def _make(options: DeepscalerOptions, sources: Mapping[str, SetSource], progress: Progress) -> DataSet:
    errors = RowErrors(skip=options.on_error == "skip")
    counts, chosen = {}, {}
    for name, source in sources.items():
        before = len(errors.problems)
        results = list(_read(options, source, errors, progress, name))
        problems = [(problem, origin) for problem, origin in results if problem.answers]
        malformed = len(errors.problems) - before
        repeated = find_repetitions([problem for problem, _ in problems])
        rest = [sourced for position, sourced in enumerate(problems) if position not in repeated]
        chosen[name] = draw(rest, options.limit, f"deepscaler/{name}/{options.seed}")
        dropped = {reason: [*repeated.values()].count(reason) for reason in (REPEATED, CONTRADICTED)}
        dropped |= {NO_ANSWER: len(results) - len(problems), MALFORMED: malformed}
        dropped |= {NOT_DRAWN: len(rest) - len(chosen[name])}
        counts[name] = Counts(len(results) + malformed, len(chosen[name]), dropped)
    errors.finish()
    files = [DataFile(file_of(name), _rows(options, name, rows), ARROW_SCHEMA) for name, rows in chosen.items()]
    return DataSet(files, counts, errors.problems)


def _read(
    options: DeepscalerOptions, source: SetSource, errors: RowErrors, progress: Progress, label: str
) -> Iterator[Sourced]:
    """Yield problems with their origins; malformed rows go to `errors`."""
    records = list(source.records(errors))
    known = (INSTRUCTION,) if options.instruction == NO_INSTRUCTION else (INSTRUCTION, options.instruction)
    results = parallel_map(partial(_read_record, known), records, options.num_proc, progress, label)
    for record, result in zip(records, results, strict=True):
        if isinstance(result, str):
            errors.add(record.where, record.number, result)
        else:
            yield result, record.origin


def _read_record(instructions: tuple[str, ...], record: Record) -> Problem | str:
    """Return the problem, or why the row is malformed."""
    try:
        return read_problem(record.row, instructions)
    except ValueError as error:
        return str(error)


def _rows(options: DeepscalerOptions, name: str, problems: Sequence[Sourced]) -> list[dict[str, Any]]:
    return [
        schema.build_row(
            data_source=name,
            prompt=build_prompt(problem.text, options.instruction, options.instruction_role),
            ability="math",
            ground_truth=problem.answers,
            index=index,
            split=split_of(name),
            extra_info={"question": problem.text, "origin": origin, "level": problem.level, "subject": problem.subject},
        )
        for index, (problem, origin) in enumerate(problems)
    ]
