"""Which train prompts are test prompts? And a train file without them.

A train row is contaminated by a test row if one of these holds:

- equal prompts (see `prompts`);
- rows that mean the same by their task, such as Knights-and-Knaves puzzles, names aside;
- overlap: at least the share `threshold` of the words of the test row's question lies in runs of `ngram` words (n-grams)
  that occur in the train row's question, too. A question with fewer words has to equal the whole other question, word by
  word. Two rows that their task can compare are not compared in this way: puzzles share their phrases.

A question is `extra_info.question` where a builder wrote it, else the last message of the user, instructions included.

The share is one of words, not of n-grams: one changed word in a question of 60 spoils 13 of its 48 n-grams but leaves 59
words in common. 13 words and 0.8 are the values of well-known contamination analyses of language models.

The train file is read row by row; memory grows with the test files and the rows found.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_trgrpo import __version__
from verl_trgrpo.common.files import replaced_file, write_text
from verl_trgrpo.common.problems import count_of, raise_problems
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data.parquet import UnreadableError, display_names, file_sha256, read_rows, read_schema
from verl_trgrpo.data.prompts import RowKey, question_text, row_keys, words_of
from verl_trgrpo.data.show import escape

EQUAL_PROMPT, EQUAL_PUZZLE, OVERLAP = "equal prompt", "equal puzzle", "overlap"
_SHOWN = 10


@dataclass(frozen=True)
class ContaminationOptions:
    """What to compare, how strictly, and where the rest goes.

    Raises ValueError for files that do not exist, the train file among the tests, numbers out of range, and an `out` that
    is one of the inputs, is no parquet name, or has a file that is not from here.

    Args:
        train: a parquet file.
        against: test files.
        ngram: words in a run, from 1.
        threshold: share of a test question's words, above 0, at most 1.
        out: parquet file for the rows that are left; without it nothing is written.
        force: replace a file at `out` that is not from here.
        json: print the result as JSON.
    """

    train: Path
    against: tuple[Path, ...]
    ngram: int = 13
    threshold: float = 0.8
    out: Path | None = None
    force: bool = False
    json: bool = False

    def __post_init__(self) -> None:
        inputs = (self.train, *self.against)
        problems = [] if self.against else ["no test file is given; name at least one"]
        problems += [f"{path} is not a file; check the path" for path in inputs if not path.is_file()]
        places = [path.resolve() for path in inputs]
        if len(set(places)) < len(places):
            problems.append("a file is given twice; name the train file and each test file once")
        if self.ngram < 1:
            problems.append(f"ngram is {self.ngram}; it must be at least 1 word")
        if not 0 < self.threshold <= 1:
            problems.append(f"threshold is {self.threshold}; it must be above 0 and at most 1")
        if self.out is not None:
            if self.out.suffix != ".parquet":
                problems.append(f"out is {self.out}; veRL tells files by their ending, name it .parquet")
            if self.out.is_dir() or not self.out.parent.is_dir():
                problems.append(f"out is {self.out}; choose a file in a directory that exists")
            elif self.out.resolve() in places:
                problems.append(f"out is {self.out}, one of the inputs; choose another name")
            elif self.out.exists() and not self.force and not _is_own(self.out):
                problems.append(f"{self.out} exists and has no manifest from here; choose another name, or force it")
        raise_problems(problems)


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
    """All contaminated train rows, in order, and how many rows of each test file are in the train file."""

    train_rows: int
    matches: tuple[Match, ...]
    test_rows: Mapping[str, int]
    test_rows_hit: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "train_rows": self.train_rows,
            "contaminated_rows": len(self.matches),
            "test_files": [
                {"file": name, "rows": rows, "rows_in_train": self.test_rows_hit[name]}
                for name, rows in self.test_rows.items()
            ],
            "matches": [asdict(match) for match in self.matches],
        }


def find_contamination(
    options: ContaminationOptions, row_key: RowKey, progress: Progress = no_progress
) -> Contamination:
    """Return the rows of the train file that match a row of a test file.

    Raises ValueError for a file that cannot be read.
    """
    names = display_names([*options.against, options.train])
    index = _TestIndex(options)
    counts = dict.fromkeys((names[path] for path in options.against), 0)
    for path in options.against:
        for keys, words in _prompts(path, names[path], row_key, progress):
            index.add(keys, words, (names[path], counts[names[path]]))
            counts[names[path]] += 1
    matches: list[Match] = []
    hit: set[tuple[str, int]] = set()
    row = -1
    for row, (keys, words) in enumerate(_prompts(options.train, names[options.train], row_key, progress)):
        found = index.find(keys, words)
        if found:
            hit.update(index.places[test] for test in found)
            best = max(found, key=lambda test: (found[test][1], found[test][0] != OVERLAP, -test))
            matches.append(Match(row, *found[best], *index.places[best]))
    hits = {name: sum(place == name for place, _ in hit) for name in counts}
    return Contamination(row + 1, tuple(matches), counts, hits)


def write_clean(found: Contamination, options: ContaminationOptions) -> dict[str, Any]:
    """Write the train file's other rows to `options.out`, and return the manifest that is written beside it.

    Rows and schema stay as they are, `extra_info.index` included. The file is the old one or the whole new one, whatever
    stops the process, and no manifest describes another file.

    Raises:
        ValueError: no row would be left, the train file is damaged, or `out` cannot be written.
    """
    if options.out is None:
        raise ValueError("out is not given; name the parquet file to write")
    if len(found.matches) == found.train_rows:
        raise ValueError(f"all {found.train_rows} rows of {options.train} are contaminated; nothing would be left")
    out = options.out
    try:
        with replaced_file(out) as temporary:
            _write_rows(options.train, temporary, {match.train_row for match in found.matches})
            manifest = {
                "package_version": __version__,
                "train": _input(options.train),
                "against": [_input(path) for path in options.against],
                "parameters": {"ngram": options.ngram, "threshold": options.threshold},
                "rows_read": found.train_rows,
                "rows_kept": found.train_rows - len(found.matches),
                "rows_in_train": dict(found.test_rows_hit),
                "dropped": [asdict(match) for match in found.matches],
                "output": {out.name: file_sha256(temporary)},
            }
            manifest_path(out).unlink(missing_ok=True)
        write_text(manifest_path(out), json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"cannot write {out} from {options.train} ({error}); check both") from error
    return manifest


def manifest_path(out: Path) -> Path:
    """Return where the manifest of `out` goes: ``NAME.manifest.json`` beside ``NAME.parquet``."""
    return out.with_name(out.stem + ".manifest.json")


def render(found: Contamination, out: Path | None) -> str:
    """Return the result as text for a terminal."""
    reasons = [match.reason for match in found.matches]
    shown = "".join(f"; {reasons.count(reason)} {reason}" for reason in sorted(set(reasons)))
    lines = [f"{len(found.matches)} of {count_of(found.train_rows, 'train row')} contaminated{shown}"]
    for name, rows in found.test_rows.items():
        lines.append(f"  {name}: {found.test_rows_hit[name]} of {count_of(rows, 'row')} in the train file")
    for match in found.matches[:_SHOWN]:
        share = f" {match.share:.2f}" if match.share < 1 else ""
        lines.append(f"  train row {match.train_row}: {match.reason}{share}, {match.test_file} row {match.test_row}")
    if len(found.matches) > _SHOWN:
        lines.append(f"  and {len(found.matches) - _SHOWN} more (--json, or the manifest, has all)")
    if out is not None:
        left = count_of(found.train_rows - len(found.matches), "row")
        lines.append(f"{out}: {left}; dropped rows are in {manifest_path(out)}")
    elif found.matches:
        lines.append("nothing was written; --out CLEAN.parquet writes the other rows")
    return "".join(f"{escape(line)}\n" for line in lines)


class _TestIndex:
    """The test questions, to be looked up by equality and by runs of words. Tests are numbered through all files."""

    def __init__(self, options: ContaminationOptions) -> None:
        self._options = options
        self.places: list[tuple[str, int]] = []
        self._words: list[int] = []
        self._has_task_key: list[bool] = []
        self._by_key: dict[str, list[int]] = defaultdict(list)
        self._by_words: dict[tuple[str, ...], list[int]] = defaultdict(list)
        self._by_run: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)

    def add(self, keys: tuple[str, ...], words: list[str], place: tuple[str, int]) -> None:
        test = len(self.places)
        self.places.append(place)
        self._words.append(len(words))
        self._has_task_key.append(_has_task_key(keys))
        for key in keys:
            self._by_key[key].append(test)
        if words:
            self._by_words[tuple(words)].append(test)
        for position, run in enumerate(_runs(words, self._options.ngram)):
            self._by_run[run].append((test, position))

    def find(self, keys: tuple[str, ...], words: list[str]) -> dict[int, tuple[str, float]]:
        """Return test -> (reason, share) for every test row that a train row matches."""
        found: dict[int, tuple[str, float]] = {}
        for key in keys:
            for test in self._by_key.get(key, ()):
                found.setdefault(test, (EQUAL_PROMPT if key.startswith("text:") else EQUAL_PUZZLE, 1.0))
        shares = dict.fromkeys(self._by_words.get(tuple(words), ()), 1.0)
        starts: dict[int, set[int]] = defaultdict(set)
        for run in _runs(words, self._options.ngram):
            for test, position in self._by_run.get(run, ()):
                starts[test].add(position)
        for test, positions in starts.items():
            shares.setdefault(test, self._covered(positions) / self._words[test])
        for test, share in shares.items():
            if share >= self._options.threshold and not (_has_task_key(keys) and self._has_task_key[test]):
                found.setdefault(test, (OVERLAP, round(share, 4)))
        return found

    def _covered(self, positions: set[int]) -> int:
        """Return how many words lie in the runs that begin at `positions`."""
        return len({position + i for position in positions for i in range(self._options.ngram)})


def _runs(words: list[str], size: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[i:] for i in range(size)), strict=False)


def _has_task_key(keys: tuple[str, ...]) -> bool:
    return any(key.startswith("task:") for key in keys)


def _prompts(path: Path, name: str, row_key: RowKey, progress: Progress) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the keys of equality and the words of each row of a file."""
    try:
        schema, count = read_schema(path)
        if "prompt" not in schema.names:
            raise ValueError(f"{path} has no column prompt; it has {', '.join(schema.names)}")
        for row in progress(read_rows(path, ["prompt", "extra_info", "reward_model"]), count, name):
            yield row_keys(row, row_key), words_of(question_text(row))
    except UnreadableError as error:
        raise ValueError(f"{path}: {error}") from error


def _write_rows(source: Path, target: Path, dropped: set[int]) -> None:
    with pq.ParquetFile(source) as file, pq.ParquetWriter(target, file.schema_arrow, compression="snappy") as writer:
        position = 0
        for batch in file.iter_batches(batch_size=1000):
            kept = pa.array([position + i not in dropped for i in range(batch.num_rows)], pa.bool_())
            position += batch.num_rows
            writer.write_batch(batch.filter(kept))


def _input(path: Path) -> dict[str, str]:
    return {"file": path.name, "sha256": file_sha256(path)}


def _is_own(out: Path) -> bool:
    try:
        manifest = json.loads(manifest_path(out).read_text(encoding="utf-8"))
        return manifest["output"][out.name] == file_sha256(out)
    except (OSError, ValueError, KeyError, TypeError):
        return False
