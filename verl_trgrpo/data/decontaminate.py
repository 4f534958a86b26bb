"""Which train prompts are test prompts? And a train file without them.

A train row is contaminated by a test row if one of these holds:

- equal prompts (see `prompts`);
- rows that mean the same by their task, such as Knights-and-Knaves puzzles, names aside;
- overlap: at least the share `threshold` of the words of the test row's question lies in runs of `ngram` words (n-grams)
  that occur in the train row's question, too. A question with fewer words has to equal the whole other question, word by
  word. Two rows that their task can compare are not compared in this way: puzzles share their phrases.

A question is `extra_info.question` where a builder wrote it, else the last message of the user, instructions included.

The train file is read row by row; memory grows with the test files and the rows found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_trgrpo import __version__
from verl_trgrpo.common.files import file_sha256, replaced_file, write_json
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import count_of
from verl_trgrpo.data.escape import escape
from verl_trgrpo.data.options import ContaminationOptions
from verl_trgrpo.data.parquet import display_names, read_rows, read_schema
from verl_trgrpo.data.prompts import RowKey, question_text, row_keys, words_of

EQUAL_PROMPT, EQUAL_PUZZLE, OVERLAP = "equal prompt", "equal puzzle", "overlap"
_SHOWN = 10


@dataclass(frozen=True)
class Match:
    """A contaminated train row and the test row that it matches best; rows count from 0.

    reason: "equal prompt", "equal puzzle" or "overlap"; share: of the test question's words, 1.0 for equal ones.
    """

    train_row: int
    reason: str
    share: float
    test_file: str
    test_row: int


@dataclass(frozen=True)
class Contamination:
    """All contaminated train rows, in order; of each test file, how many rows it has and how many are in the train file."""

    train_rows: int
    matches: tuple[Match, ...]
    tests: Mapping[str, tuple[int, int]]


def find_contamination(
    options: ContaminationOptions, row_key: RowKey, progress: Progress = no_progress
) -> Contamination:
    """Return the rows of the train file that match a row of a test file.

    Raises ValueError for a file that cannot be read.
    """
    names = display_names([*options.against, options.train])
    questions = partial(_questions, names=names, row_key=row_key, progress=progress)
    tests = [(names[path], row, question) for path in options.against for row, question in enumerate(questions(path))]
    index = _TestIndex([question for _, _, question in tests], options)
    matches, hit, count = [], set(), 0
    for row, question in enumerate(questions(options.train)):
        count += 1
        if found := index.find(question):
            hit |= {*found}
            best = max(found, key=lambda test: (found[test][1], found[test][0] != OVERLAP, -test))
            matches.append(Match(row, *found[best], *tests[best][:2]))
    files = [name for name, _, _ in tests]
    hits = [files[test] for test in hit]
    return Contamination(
        count, tuple(matches), {name: (files.count(name), hits.count(name)) for name in dict.fromkeys(files)}
    )


def write_clean(found: Contamination, options: ContaminationOptions) -> None:
    """Write the train file's other rows to `options.out`, and a manifest beside it.

    Rows and schema stay as they are, `extra_info.index` included. The file appears whole or not at all.

    Raises:
        ValueError: `out` is not given, no row would be left, or the train file is damaged.
    """
    out, dropped = options.out, {match.train_row for match in found.matches}
    if out is None:
        raise ValueError("out is not given; name the parquet file to write")
    if len(dropped) == found.train_rows:
        raise ValueError(f"all {found.train_rows} rows of {options.train} are contaminated; nothing would be left")
    try:
        with (
            replaced_file(out) as temporary,
            pq.ParquetFile(options.train) as file,
            pq.ParquetWriter(temporary, file.schema_arrow, compression="snappy") as writer,
        ):
            position = 0
            for batch in file.iter_batches(batch_size=1000):
                writer.write_batch(batch.filter(pa.array([position + i not in dropped for i in range(len(batch))])))
                position += len(batch)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"cannot write {out} from {options.train} ({error}); check both") from error
    manifest = {
        "package_version": __version__,
        "ngram": options.ngram,
        "threshold": options.threshold,
        "sha256": {
            name: file_sha256(path) for path, name in display_names([options.train, *options.against, out]).items()
        },
        **asdict(found),
    }
    write_json(manifest_path(out), manifest)


def manifest_path(out: Path) -> Path:
    """Return where the manifest of `out` goes: ``NAME.manifest.json`` beside ``NAME.parquet``."""
    return out.with_name(out.stem + ".manifest.json")


def render(found: Contamination, out: Path | None) -> str:
    """Return the result as text for a terminal."""
    reasons = [match.reason for match in found.matches]
    shown = "".join(f"; {reasons.count(reason)} {reason}" for reason in sorted(set(reasons)))
    lines = [f"{len(found.matches)} of {count_of(found.train_rows, 'train row')} contaminated{shown}"]
    for name, (rows, hit) in found.tests.items():
        lines.append(f"  {name}: {hit} of {count_of(rows, 'row')} in the train file")
    for match in found.matches[:_SHOWN]:
        share = f" {match.share:.2f}" if match.share < 1 else ""
        lines.append(f"  train row {match.train_row}: {match.reason}{share}, {match.test_file} row {match.test_row}")
    if len(found.matches) > _SHOWN:
        lines.append(f"  and {len(found.matches) - _SHOWN} more (the manifest beside --out has all)")
    if out is not None:
        left = count_of(found.train_rows - len(found.matches), "row")
        lines.append(f"{out}: {left}; dropped rows are in {manifest_path(out)}")
    elif found.matches:
        lines.append("nothing was written; --out CLEAN.parquet writes the other rows")
    return "".join(f"{escape(line)}\n" for line in lines)


@dataclass(frozen=True)
class _Question:
    """The keys of equality of a row, and the words of its question."""

    keys: tuple[str, ...]
    words: tuple[str, ...]


def _has_task_key(question: _Question) -> bool:
    return any(key.startswith("task:") for key in question.keys)


class _TestIndex:
    """The test questions, to be looked up by equality and by runs of words; a test is its position in `tests`."""

    def __init__(self, tests: Sequence[_Question], options: ContaminationOptions) -> None:
        self._tests, self._options = tests, options
        self._by_key: dict[Any, list[int]] = defaultdict(list)  # also by all words of a question
        self._by_run: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
        for test, question in enumerate(tests):
            for key in (*question.keys, question.words):
                self._by_key[key].append(test)
            for position, run in enumerate(self._runs(question.words)):
                self._by_run[run].append((test, position))

    def find(self, question: _Question) -> dict[int, tuple[str, float]]:
        """Return test -> (reason, share) for every test row that a train row matches."""
        found: dict[int, tuple[str, float]] = {}
        for key in question.keys:
            for test in self._by_key.get(key, ()):
                found.setdefault(test, (EQUAL_PROMPT if key.startswith("text:") else EQUAL_PUZZLE, 1.0))
        covered: dict[int, set[int]] = defaultdict(set)
        for run in self._runs(question.words):
            for test, position in self._by_run.get(run, ()):
                covered[test].update(range(position, position + len(run)))
        shares = {test: len(positions) / len(self._tests[test].words) for test, positions in covered.items()}
        if question.words:
            shares |= dict.fromkeys(self._by_key.get(question.words, ()), 1.0)
        for test, share in shares.items():
            if share >= self._options.threshold and not all(map(_has_task_key, (question, self._tests[test]))):
                found.setdefault(test, (OVERLAP, round(share, 4)))
        return found

    def _runs(self, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        return zip(*(words[i:] for i in range(self._options.ngram)), strict=False)


def _questions(path: Path, names: Mapping[Path, str], row_key: RowKey, progress: Progress) -> Iterator[_Question]:
    schema, count = read_schema(path)
    if "prompt" not in schema.names:
        raise ValueError(f"{path} has no column prompt; it has {', '.join(schema.names)}")
    for row in progress(read_rows(path, ["prompt", "extra_info", "reward_model"]), count, names[path]):
        yield _Question(row_keys(row, row_key), tuple(words_of(question_text(row))))
