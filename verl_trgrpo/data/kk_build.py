"""Build a Knights-and-Knaves data set for veRL: ``train.parquet``, ``test.parquet`` and ``manifest.json``."""

import os
import random
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_trgrpo import __version__
from verl_trgrpo.data import kk_sources, parquet, schema
from verl_trgrpo.data.kk_prompts import PROMPT_STYLES, format_solution, puzzle_prompt
from verl_trgrpo.data.kk_puzzles import DISTINCT_PUZZLES, MAX_PEOPLE, MIN_PEOPLE
from verl_trgrpo.data.kk_sources import HUB_DATASET, HUB_REVISION, Progress, Selection, SourcedPuzzle, no_progress

SPLITS = ("train", "test")

EXTRA_INFO = [
    pa.field("n_people", pa.int64()),
    pa.field("names", pa.list_(pa.string())),
    pa.field("statements", pa.string()),
    pa.field("origin", pa.string()),
]


@dataclass(frozen=True)
class KkDatasetOptions:
    """What to build.

    out: directory for the files.
    people: the numbers of people, each from 2 to 8.
    train, test: how many puzzles for each number of people, at least 1.
    seed: any integer.
    source: ("generate",), ("hf",) or paths of files in the public format.
    test_source: with files, paths of further files to take the test puzzles from.
    hf_dataset, revision: with "hf", the name or local directory of the data set, and its commit, branch or tag.
    prompt, system: see `kk_prompts.build_prompt`.
    force: build even where `out` has the same data set already or files that are not from here.

    Raises ValueError that lists everything that is wrong.
    """

    out: Path
    people: tuple[int, ...]
    train: int
    test: int
    seed: int = 0
    source: tuple[str, ...] = ("generate",)
    test_source: tuple[str, ...] = ()
    hf_dataset: str = HUB_DATASET
    revision: str = HUB_REVISION
    prompt: str = "paper"
    system: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        problems = [*self._size_problems(), *self._source_problems()]
        if self.prompt not in PROMPT_STYLES:
            problems.append(f"prompt is {self.prompt!r}; choose one of {', '.join(PROMPT_STYLES)}")
        elif self.prompt == "short" and self.system:
            problems.append("prompt 'short' has no instructions for a system message; leave system out")
        if problems:
            lines = problems if len(problems) == 1 else [f"{len(problems)} problems:", *problems]
            raise ValueError("\n- ".join(lines))

    @property
    def kind(self) -> str:
        """Return "generate", "hf" or "files"."""
        return self.source[0] if self.source in (("generate",), ("hf",)) else "files"

    def _size_problems(self) -> list[str]:
        problems = []
        wrong = [n for n in self.people if not MIN_PEOPLE <= n <= MAX_PEOPLE]
        if wrong or not self.people:
            problems.append(
                f"people is {list(self.people)}; give one or more numbers from {MIN_PEOPLE} to {MAX_PEOPLE}"
            )
        if len(set(self.people)) < len(self.people):
            problems.append(f"people is {list(self.people)}; give each number once")
        for split in SPLITS:
            if getattr(self, split) < 1:
                problems.append(f"{split} is {getattr(self, split)}; ask for at least 1 puzzle per number of people")
        asked = self.train + self.test
        for n_people in sorted(set(self.people)) if self.kind == "generate" else ():
            if asked > DISTINCT_PUZZLES.get(n_people, asked):
                problems.append(
                    f"train {self.train} and test {self.test} make {asked}, but only {DISTINCT_PUZZLES[n_people]} "
                    f"different puzzles with {n_people} people exist; ask for fewer or leave {n_people} out of people"
                )
        return problems

    def _source_problems(self) -> list[str]:
        problems = []
        files = [*(self.source if self.kind == "files" else ()), *self.test_source]
        if not self.source or (len(self.source) > 1 and {"generate", "hf"} & set(self.source)):
            problems.append(f"source is {list(self.source)}; give 'generate', 'hf' or one or more files")
        else:
            problems += [f"source {name} is not a file; check the path" for name in files if not Path(name).is_file()]
        if self.test_source and self.kind != "files":
            problems.append(f"test_source goes with files only, but source is {self.kind!r}; leave it out")
        if self.kind != "hf" and (self.hf_dataset, self.revision) != (HUB_DATASET, HUB_REVISION):
            problems.append(
                f"hf_dataset and revision go with source 'hf' only, but it is {self.kind!r}; leave them out"
            )
        return problems


@dataclass(frozen=True)
class BuildResult:
    """The manifest of the data set, and whether it was built now or found complete."""

    manifest: dict[str, Any]
    built: bool


def build(options: KkDatasetOptions, progress: Progress = no_progress) -> BuildResult:
    """Build the data set, or find it already built with the same arguments.

    The files appear together or the old ones stay. Raises ValueError for a source that cannot give what is asked for,
    an output directory that cannot be written, or one with data files that have no manifest from here.
    """
    arguments = _arguments(options)
    recorded = parquet.read_manifest(options.out)
    if not options.force:
        if recorded is not None and _is_current(recorded, arguments) and parquet.is_intact(options.out, recorded):
            return BuildResult(recorded, built=False)
        foreign = [name for name in _files() if recorded is None and (options.out / name).exists()]
        if foreign:
            raise ValueError(
                f"{options.out} has {', '.join(foreign)} but no {parquet.MANIFEST} that says where they are from; "
                "choose another directory, or force the build to replace them"
            )
    with parquet.staged_files(options.out, [*_files(), parquet.MANIFEST]) as stage:
        selections = list(_select(options, progress))
        facts = {}
        for split, name in zip(SPLITS, _files(), strict=True):
            rows = _rows(options, split, selections)
            schema.check_rows(rows)
            parquet.write_parquet(stage / name, rows, schema.arrow_schema(EXTRA_INFO))
            facts[name] = {"rows": len(rows), "sha256": parquet.file_sha256(stage / name)}
        manifest = _manifest(options, arguments, selections, facts)
        parquet.write_manifest(stage, manifest)
    return BuildResult(manifest, built=True)


def _files() -> list[str]:
    return [f"{split}.parquet" for split in SPLITS]


def _select(options: KkDatasetOptions, progress: Progress) -> Iterable[Selection]:
    request = (options.people, options.train, options.test, options.seed)
    if options.kind == "generate":
        return kk_sources.from_generator(*request, progress=progress)
    if options.kind == "hf":
        return kk_sources.from_hub(*request, options.hf_dataset, options.revision, progress)
    files, test_files = (tuple(map(Path, names)) for names in (options.source, options.test_source))
    return kk_sources.from_files(*request, files, test_files, progress)


def _rows(options: KkDatasetOptions, split: str, selections: Sequence[Selection]) -> list[dict[str, Any]]:
    """Return the rows of one split, all sizes mixed in an order that depends on the seed."""
    puzzles: list[SourcedPuzzle] = [sourced for selection in selections for sourced in getattr(selection, split)]
    random.Random(f"order/{split}/{options.seed}").shuffle(puzzles)
    rows = []
    for index, sourced in enumerate(puzzles):
        puzzle, n_people = sourced.puzzle, len(sourced.puzzle.names)
        rows.append(
            schema.build_row(
                data_source=f"kk_{n_people}ppl",
                prompt=puzzle_prompt(puzzle, options.prompt, options.system),
                ability="logic",
                ground_truth=format_solution(puzzle.names, puzzle.solution),
                index=index,
                split=split,
                extra_info={
                    "n_people": n_people,
                    "names": list(puzzle.names),
                    "statements": repr(puzzle.statements),
                    "origin": sourced.origin,
                },
            )
        )
    return rows


def _arguments(options: KkDatasetOptions) -> dict[str, Any]:
    """Return what determines the data, in a form that does not depend on where the files are."""
    arguments: dict[str, Any] = {
        "source": options.kind,
        "people": list(options.people),
        "train": options.train,
        "test": options.test,
        "seed": options.seed,
        "prompt": options.prompt,
        "system": options.system,
    }
    if options.kind == "hf":
        arguments |= {"hf_dataset": options.hf_dataset, "revision": options.revision}
    if options.kind == "files":
        for name, paths in (("files", options.source), ("test_files", options.test_source)):
            arguments[name] = [{"name": Path(p).name, "sha256": parquet.file_sha256(Path(p))} for p in paths]
    return arguments


def _is_current(recorded: dict[str, Any], arguments: dict[str, Any]) -> bool:
    expected = {"schema_version": schema.SCHEMA_VERSION, "package_version": __version__, "arguments": arguments}
    return all(recorded.get(name) == value for name, value in expected.items())


def _manifest(
    options: KkDatasetOptions, arguments: dict[str, Any], selections: Sequence[Selection], facts: dict[str, Any]
) -> dict[str, Any]:
    libraries = {"generate": ["reasoning-gym", "numpy"], "hf": ["datasets"], "files": []}[options.kind]
    return {
        "schema_version": schema.SCHEMA_VERSION,
        "package_version": __version__,
        "library_versions": {name: version(name) for name in [*libraries, "pyarrow"]},
        "command": _command(options),
        "arguments": arguments,
        "counts": {
            f"{selection.n_people}ppl": {
                "read": selection.read,
                "train": len(selection.train),
                "test": len(selection.test),
                "dropped": {reason: count for reason, count in selection.dropped.items() if count},
            }
            for selection in selections
        },
        "files": facts,
    }


def _command(options: KkDatasetOptions) -> str:
    """Return the command that builds this data set when it is run in the directory that holds the data set."""

    def relative(paths: Sequence[str]) -> list[str]:
        return [os.path.relpath(path, options.out) for path in paths]

    words = ["python", "data_prep/kk.py", "--out", ".", "--people", *map(str, options.people)]
    words += ["--train", str(options.train), "--test", str(options.test), "--seed", str(options.seed)]
    words += ["--source", *(relative(options.source) if options.kind == "files" else options.source)]
    if options.test_source:
        words += ["--test-source", *relative(options.test_source)]
    if options.kind == "hf":
        words += ["--hf-dataset", options.hf_dataset, "--revision", options.revision]
    words += ["--prompt", options.prompt, *(["--system"] if options.system else [])]
    return shlex.join(words)
