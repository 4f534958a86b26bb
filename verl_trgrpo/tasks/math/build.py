"""Build DeepScaleR's train set and test sets for veRL: a parquet file for each and ``manifest.json``."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.common.progress import Progress, no_progress, parallel_map
from verl_trgrpo.data import command, schema
from verl_trgrpo.data.build import BuildPlan, BuildResult, Counts, DataFile, DataSet, build_data_set
from verl_trgrpo.data.selection import MALFORMED, NOT_DRAWN, draw
from verl_trgrpo.data.sources import Record, RowErrors
from verl_trgrpo.tasks.math.answers import NoAnswerError
from verl_trgrpo.tasks.math.problems import Problem, read_problem
from verl_trgrpo.tasks.math.prompts import INSTRUCTION, INSTRUCTION_ROLES, NO_INSTRUCTION, build_prompt
from verl_trgrpo.tasks.math.repetitions import CONTRADICTED, REPEATED, find_repetitions
from verl_trgrpo.tasks.math.sets import SETS, TRAIN, hub_data
from verl_trgrpo.tasks.math.sources import SetSource, find_sources

logger = logging.getLogger(__name__)

NO_ANSWER = "the row has no answer"

ARROW_SCHEMA = schema.arrow_schema(
    [pa.field("origin", pa.string()), pa.field("level", pa.string()), pa.field("subject", pa.string())],
    # For every set, also where all rows have one answer: veRL can only concatenate files of equal types.
    ground_truth=pa.list_(pa.string()),
)

Sourced = tuple[Problem, str]  # a problem and its origin


@dataclass(frozen=True)
class DeepscalerOptions:
    """What to build.

    out: directory for the files.
    source: "hf", a directory, or a file: of the test set whose file name it has, otherwise of train problems.
    sets: names from `SETS`; none for all that the source has.
    hf_dataset: with "hf", other places on the hub, see `sets.hub_data`.
    revision: with "hf", commit, branch or tag of the train set; None for the pinned commit.
    instruction: text to append to each problem, or "none".
    instruction_role: "user", or "system" to give the instruction as a system message.
    limit: at most this many rows per file, at least 1; None for all.
    seed: any integer; chooses the rows where there is a limit.
    num_proc: processes, at least 1; the files do not depend on it.
    on_error: "raise" or "skip" malformed rows.
    force: see `BuildPlan`.

    Raises ValueError that lists everything that is wrong.
    """

    out: Path
    source: str = "hf"
    sets: tuple[str, ...] = ()
    hf_dataset: tuple[str, ...] = ()
    revision: str | None = None
    instruction: str = INSTRUCTION
    instruction_role: str = "user"
    limit: int | None = None
    seed: int = 0
    num_proc: int = 1
    on_error: str = "raise"
    force: bool = False

    def __post_init__(self) -> None:
        problems = command.common_problems(self.limit, self.num_proc, self.on_error)
        problems += self._prompt_problems()
        unknown = [name for name in self.sets if name not in SETS]
        if unknown:
            problems.append(f"sets has {', '.join(unknown)}; choose from {', '.join(SETS)}")
        if self.source != "hf":
            given = {"hf_dataset": self.hf_dataset, "revision": self.revision}
            problems += [
                f"{name} goes with source 'hf' only, but it is {self.source!r}; leave it out"
                for name in given
                if given[name]
            ]
        elif self.revision and any(text.startswith(f"{TRAIN}=") for text in self.hf_dataset):
            problems.append(f"revision and hf_dataset both choose {TRAIN}; write the revision into hf_dataset")
        try:
            missing = [name for name in self.sets if name in SETS and name not in self.sources()]
        except ValueError as error:
            problems.append(str(error))
        else:
            if missing:
                problems.append(f"source {self.source} has no {', '.join(missing)}; leave it out of sets")
        raise_problems(problems)

    def sources(self) -> dict[str, SetSource]:
        """Return all sets that the source has. Raises ValueError where there are none."""
        hub = hub_data(self.hf_dataset)
        if self.revision:
            hub[TRAIN] = replace(hub[TRAIN], revision=self.revision)
        return find_sources(self.source, hub)

    def _prompt_problems(self) -> list[str]:
        problems = []
        tags = [tag for tag in schema.CHAT_TAGS if tag in self.instruction]
        if not self.instruction.strip() or tags:
            reason = f"contains {', '.join(tags)}" if tags else "is empty"
            problems.append(f"instruction {reason}; give a plain text, or {NO_INSTRUCTION!r}")
        if self.instruction_role not in INSTRUCTION_ROLES:
            problems.append(
                f"instruction_role is {self.instruction_role!r}; choose one of {', '.join(INSTRUCTION_ROLES)}"
            )
        elif self.instruction == NO_INSTRUCTION and self.instruction_role != "user":
            problems.append(f"instruction_role is {self.instruction_role!r}, but there is no instruction; leave it out")
        return problems


def build(options: DeepscalerOptions, progress: Progress = no_progress) -> BuildResult:
    """Build the data set, or find it already built with the same arguments; see `build_data_set`.

    Raises ValueError for a source that cannot be read, malformed rows, or an output directory that cannot be written.
    """
    available = options.sources()
    missing = [name for name in SETS if name not in available]
    if missing and not options.sets:
        logger.warning("%s has no %s; building %s", options.source, ", ".join(missing), ", ".join(available))
    sources = {name: available[name] for name in SETS if name in available and name in (options.sets or SETS)}
    plan = BuildPlan(
        builder="deepscaler",
        out=options.out,
        arguments=_arguments(options, sources),
        command=_command(options),
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
        problems = [result for result in results if result is not None]
        malformed = len(errors.problems) - before
        repeated = find_repetitions([problem for problem, _ in problems])
        rest = [sourced for position, sourced in enumerate(problems) if position not in repeated]
        chosen[name] = draw(rest, options.limit, f"deepscaler/{name}/{options.seed}")
        dropped = {reason: [*repeated.values()].count(reason) for reason in (REPEATED, CONTRADICTED)}
        dropped |= {NO_ANSWER: len(results) - len(problems), MALFORMED: malformed}
        dropped |= {NOT_DRAWN: len(rest) - len(chosen[name])}
        counts[name] = Counts(len(results) + malformed, len(chosen[name]), dropped)
    errors.finish()
    files = [DataFile(SETS[name].file, _rows(options, name, rows), ARROW_SCHEMA) for name, rows in chosen.items()]
    return DataSet(files, counts, errors.problems, _shared(chosen))


def _read(
    options: DeepscalerOptions, source: SetSource, errors: RowErrors, progress: Progress, label: str
) -> Iterator[Sourced | None]:
    """Yield problems with their origins, None for a row without an answer; malformed rows go to `errors`."""
    records = list(source.records(errors))
    known = (INSTRUCTION,) if options.instruction == NO_INSTRUCTION else (INSTRUCTION, options.instruction)
    read = partial(_read_record, known)
    results = parallel_map(read, records, options.num_proc, progress, label)
    for record, result in zip(records, results, strict=True):
        if isinstance(result, str):
            errors.add(record.where, record.number, result)
        else:
            yield None if result is None else (result, record.origin)


def _read_record(instructions: tuple[str, ...], record: Record) -> Problem | str | None:
    """Return the problem, why the row is malformed, or None where it has no answer."""
    try:
        return read_problem(record.row, instructions)
    except NoAnswerError:
        return None
    except ValueError as error:
        return str(error)


def _shared(chosen: Mapping[str, Sequence[Sourced]]) -> dict[str, int]:
    """Count train problems that are also in a test set. They stay: decontamination needs more than equal texts."""
    train = [problem.key for problem, _ in chosen.get(TRAIN, ())]
    notes = {}
    for name, problems in chosen.items():
        keys = {problem.key for problem, _ in problems}
        number = sum(key in keys for key in train)
        if name != TRAIN and number:
            notes[f"train problems that stay although they are also in {name}"] = number
    return notes


def _rows(options: DeepscalerOptions, name: str, problems: Sequence[Sourced]) -> list[dict[str, Any]]:
    return [
        schema.build_row(
            data_source=name,
            prompt=build_prompt(problem.text, options.instruction, options.instruction_role),
            ability="math",
            ground_truth=problem.answers,
            index=index,
            split=SETS[name].split,
            extra_info={"origin": origin, "level": problem.level, "subject": problem.subject},
        )
        for index, (problem, origin) in enumerate(problems)
    ]


def _arguments(options: DeepscalerOptions, sources: Mapping[str, SetSource]) -> dict[str, Any]:
    return {
        "sources": {name: source.identity() for name, source in sources.items()},
        "instruction": options.instruction,
        "instruction_role": options.instruction_role,
        "limit": options.limit,
        "seed": options.seed,
        "on_error": options.on_error,
    }


def _command(options: DeepscalerOptions) -> list[str]:
    """Return the command that builds this data set, with paths as they were given."""
    words = ["python", "data_prep/deepscaler.py", "--out", str(options.out), "--source", options.source]
    words += ["--sets", *options.sets] if options.sets else []
    words += [word for text in options.hf_dataset for word in ("--hf-dataset", text)]
    words += ["--revision", options.revision] if options.revision else []
    words += ["--instruction", options.instruction, "--instruction-role", options.instruction_role]
    words += ["--limit", str(options.limit)] if options.limit else []
    return [*words, "--seed", str(options.seed), "--on-error", options.on_error]
