"""Find train rows whose prompts are in test files, and write a train file without them.

A train row is contaminated by a test row if one of these holds:

- equal prompts (see `normalize_text`);
- rows that mean the same for their task: puzzles that differ only in names and order;
- overlap: at least the share `threshold` of the words of the test row's question is in runs of `ngram` words (n-grams)
  that the train row's question contains, too, and the train row's question has all of its numbers: problems that differ in
  their numbers are different ones. A question with fewer words has to equal the whole other question, word by word. Two
  puzzles are not compared in this way, because puzzles share their phrases.

A question is `extra_info.question` if the builder recorded it, else the last message of the user. Its words are those of
`words_of`, in which typesetting makes no difference, without instructions: runs of `ngram` words in a tenth of the rows of a
file.

The train file is read row by row; memory grows with the test files and the matches, and time with the train file: a run of
words in more than `_MAX_TESTS_OF_RUN` test rows is a phrase, which does not tell problems apart.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional

from verl_trgrpo import __version__
from verl_trgrpo.common.files import file_sha256, replaced_file, write_json
from verl_trgrpo.common.foreign import open_foreign, real_path
from verl_trgrpo.common.options import Options
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import count_of, escape_controls, shorten
from verl_trgrpo.data.rows import (
    RawRow,
    display_names,
    extra_info_of,
    file_problems,
    normalize_text,
    read_schema,
    row_keys,
    spoken_messages,
)
from verl_trgrpo.data.verl_files import data_paths, read_rows
from verl_trgrpo.tasks.registry import known_spellings, task_key_of

EQUAL_PROMPT, OVERLAP = "equal prompt", "overlap"
_MAX_SHOWN = 10
_MAX_TESTS_OF_RUN = 100
# A run of words belongs to an instruction from this share of a file's rows on; of a train file these first rows are read.
_SHARE_OF_INSTRUCTION = 0.1
_MIN_ROWS_OF_INSTRUCTION = 20
_SAMPLED_ROWS = 2000
# Characters of scripts without spaces are words by themselves.
_WORD = re.compile(
    r"[\u3040-\u30ff\u4e00-\u9fff]|[^\W\d_\u3040-\u30ff\u4e00-\u9fff]+|\d+(?:\.\d+)?|[-+*/=<>]"
)  # 面; area; 3.5; +


@dataclass(frozen=True)
class ContaminationOptions(Options):
    """Files to compare, and where the remaining train rows go.

    Args:
        train: a Parquet file.
        against: test files, or patterns.
        ngram: words in a run, at least 1.
        threshold: share of a test question's words, in (0, 1].
        out: Parquet file for the remaining rows; without it nothing is written.
        force: replace the file at `out`.
    """

    train: Positional[Path]
    against: tuple[Path, ...]
    ngram: Annotated[int, "[1, inf)"] = 8
    threshold: Annotated[float, "(0, 1]"] = 0.7
    out: Path | None = None
    force: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "against", data_paths(self.against))
        super().__post_init__()

    def problems(self) -> list[str]:
        """Return a message for each problem of the files."""
        inputs = (self.train, *self.against)
        messages = [] if self.against else ["against is empty; name at least one test file"]
        messages += file_problems(inputs)
        if self.out is not None:
            if self.out.suffix != ".parquet":
                messages.append(f"out={self.out}: must end with .parquet, by which veRL recognizes the format")
            if self.out.resolve() in [path.resolve() for path in inputs]:
                messages.append(f"out={self.out}: is one of the inputs; choose another name")
            elif self.out.exists() and not self.force:
                messages.append(f"out={self.out}: exists; choose another name, or replace the file with --force")
        return messages


@dataclass(frozen=True)
class Match:
    """A contaminated train row and the test row that it matches best; rows count from 0.

    The reason is `EQUAL_PROMPT`, ``equal`` and the task's noun, such as ``equal puzzle``, or `OVERLAP`; `share` is that of the
    test question's words, in (0, 1].
    """

    train_row: int
    reason: str
    share: float
    test_file: str
    test_row: int


@dataclass(frozen=True)
class Contamination:
    """All contaminated train rows, in order, and the number of rows of the train file.

    Args:
        tests: for each test file, its number of rows and how many of them are in the train file.
        instructions: words that were left out, as phrases, because so many rows of a file share them.
    """

    train_rows: int
    matches: tuple[Match, ...]
    tests: Mapping[str, tuple[int, int]]
    instructions: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Question:
    """The keys of equality of a row, and the words of its question."""

    keys: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def has_task_key(self) -> bool:
        return any(not key.startswith("text:") for key in self.keys)

    @property
    def numbers(self) -> set[str]:
        return {word for word in self.words if word[0].isdigit()}


class _Instructions:
    """Runs of `ngram` words that many rows of a file share."""

    def __init__(self, ngram: int) -> None:
        self._ngram = ngram
        self._runs: set[tuple[str, ...]] = set()
        self.phrases: dict[str, None] = {}

    def learn(self, questions: Sequence[_Question]) -> None:
        """Add the runs that a tenth of the questions of one file have, and at least 20 of them."""
        rows = Counter(run for question in questions for run in {*runs_of(question.words, self._ngram)})
        least = max(_MIN_ROWS_OF_INSTRUCTION, _SHARE_OF_INSTRUCTION * len(questions))
        new = {run for run, count in rows.items() if count >= least}
        self._runs |= new
        for question in questions if new else ():
            for known, stretch in groupby(self._marked(question), key=itemgetter(1)):
                if known:
                    self.phrases.setdefault(" ".join(word for word, _ in stretch))

    def remove(self, question: _Question) -> _Question:
        """Return a question without them."""
        if not self._runs:
            return question
        return _Question(question.keys, tuple(word for word, known in self._marked(question) if not known))

    def _marked(self, question: _Question) -> Iterator[tuple[str, bool]]:
        """Return each word of a question with whether one of the runs covers it."""
        known = [False] * len(question.words)
        for position, run in enumerate(runs_of(question.words, self._ngram)):
            if run in self._runs:
                known[position : position + self._ngram] = [True] * self._ngram
        return zip(question.words, known, strict=True)


def runs_of(words: tuple[str, ...], ngram: int) -> Iterable[tuple[str, ...]]:
    """Return all runs of `ngram` words."""
    return zip(*(words[i:] for i in range(ngram)), strict=False)


def find_contamination(options: ContaminationOptions, progress: Progress = no_progress) -> Contamination:
    """Return the rows of the train file that match a row of a test file. Raises a ValueError if a file cannot be read."""
    names = display_names([*options.against, options.train])
    instructions = _Instructions(options.ngram)
    by_file: dict[Path, list[_Question]] = {}
    for path in options.against:
        by_file[path] = [*_questions(path, names[path], progress)]
        instructions.learn(by_file[path])
    train = _questions(options.train, names[options.train], progress)
    sample = [*islice(train, _SAMPLED_ROWS)]
    instructions.learn(sample)
    tests = [
        (names[path], row, instructions.remove(question))
        for path, questions in by_file.items()
        for row, question in enumerate(questions)
    ]
    index = _TestIndex([question for _, _, question in tests], options)
    matches, hit, count = [], set(), 0
    for row, question in enumerate(chain(sample, train)):
        count += 1
        if found := index.find(instructions.remove(question)):
            hit |= {*found}
            best = max(found, key=lambda test: (found[test][1], found[test][0] != OVERLAP, -test))
            matches.append(Match(row, *found[best], *tests[best][:2]))
    files = [name for name, _, _ in tests]
    hits = [files[test] for test in hit]
    counts = {name: (files.count(name), hits.count(name)) for name in dict.fromkeys(files)}
    return Contamination(count, tuple(matches), counts, tuple(instructions.phrases))


def _questions(path: Path, name: str, progress: Progress) -> Iterator[_Question]:
    schema, count = read_schema(path)
    if "prompt" not in schema.names:
        raise ValueError(f"{path} has no column prompt (found {', '.join(schema.names)})")
    for row in progress(read_rows(path, ["prompt", "extra_info", "reward_model"]), count, name):
        yield _Question(row_keys(row, task_key_of(row)), tuple(words_of(question_text(row))))


def words_of(text: str) -> list[str]:
    """Return the words of a question in the spelling of the tasks, in lower case: runs of letters, numbers, and single signs."""
    for spelled in known_spellings():
        text = spelled(text)
    return _WORD.findall(normalize_text(text))


def question_text(row: RawRow) -> str:
    """Return a row's question: `extra_info.question` if it has that, else the last message of its prompt."""
    question = extra_info_of(row).get("question")
    if isinstance(question, str) and question.strip():
        return question
    messages = spoken_messages(row.get("prompt"))
    of_user = [content for role, content in messages if role == "user"]
    return (of_user or [content for _, content in messages] or [""])[-1]


class _TestIndex:
    """Find test questions by equality and by runs of words; a test question is its position in `tests`."""

    def __init__(self, tests: Sequence[_Question], options: ContaminationOptions) -> None:
        self._tests, self._options = tests, options
        self._by_key: dict[Any, list[int]] = defaultdict(list)  # also by all words of a question
        self._by_run: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
        for test, question in enumerate(tests):
            for key in (*question.keys, question.words):
                self._by_key[key].append(test)
            for position, run in enumerate(runs_of(question.words, options.ngram)):
                self._by_run[run].append((test, position))

    def find(self, question: _Question) -> dict[int, tuple[str, float]]:
        """Return test -> (reason, share) for every test row that a train row matches."""
        found: dict[int, tuple[str, float]] = {}
        for key in question.keys:
            for test in self._by_key.get(key, ()):
                noun = key.partition(":")[0]
                found.setdefault(test, (EQUAL_PROMPT if noun == "text" else f"equal {noun}", 1.0))
        covered = self._covered(question)
        numbers = question.numbers if covered else frozenset()
        shares = {
            test: len(positions) / len(self._tests[test].words)
            for test, positions in covered.items()
            if self._tests[test].numbers <= numbers
        }
        if question.words:
            equal = self._by_key.get(question.words, ())
            shares |= {test: 1.0 for test in equal if not (question.has_task_key and self._tests[test].has_task_key)}
        for test, share in shares.items():
            if share >= self._options.threshold:
                found.setdefault(test, (OVERLAP, round(share, 4)))
        return found

    def _covered(self, question: _Question) -> dict[int, set[int]]:
        """Return test -> positions of its words in runs which `question` has, too."""
        covered: dict[int, set[int]] = defaultdict(set)
        for run in runs_of(question.words, self._options.ngram):
            places = self._by_run.get(run, [])
            for test, position in places if len(places) <= _MAX_TESTS_OF_RUN else ():
                if not (question.has_task_key and self._tests[test].has_task_key):
                    covered[test].update(range(position, position + len(run)))
        return covered


def write_clean(found: Contamination, options: ContaminationOptions) -> None:
    """Write the train file's other rows to `options.out`, and a manifest beside it.

    Rows and schema stay unchanged, `extra_info.index` included. The file appears whole or not at all.

    Raises:
        ValueError: `out` is not given, all rows are contaminated, or the train file is damaged.
    """
    out, dropped = options.out, {match.train_row for match in found.matches}
    if out is None:
        raise ValueError("out is not given; name the Parquet file to write")
    if len(dropped) == found.train_rows:
        raise ValueError(f"all rows of {options.train} ({found.train_rows}) are contaminated; nothing would be left")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with (
            replaced_file(out) as temporary,
            open_foreign(real_path(options.train)) as opened,
            pq.ParquetFile(opened) as file,
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
    """Return the path of the manifest, ``NAME.manifest.json`` beside ``NAME.parquet``."""
    return out.with_name(out.stem + ".manifest.json")


def contamination_text(found: Contamination, out: Path | None) -> str:
    """Return the result for a terminal."""
    reasons = [match.reason for match in found.matches]
    shown = "".join(f"; {reasons.count(reason)} {reason}" for reason in sorted(set(reasons)))
    lines = [f"{len(found.matches)} of {count_of(found.train_rows, 'train row')} contaminated{shown}"]
    for name, (rows, hit) in found.tests.items():
        lines.append(f"  {name}: {hit} of {count_of(rows, 'row')} in the train file")
    for match in found.matches[:_MAX_SHOWN]:
        share = f" {match.share:.2f}" if match.share < 1 else ""
        lines.append(f"  train row {match.train_row}: {match.reason}{share}, {match.test_file} row {match.test_row}")
    if len(found.matches) > _MAX_SHOWN:
        lines.append(f"  and {len(found.matches) - _MAX_SHOWN} more (the manifest beside --out has all)")
    if found.instructions:
        longest = max(found.instructions, key=len)
        lines.append(
            f"  left out as instructions: {count_of(len(found.instructions), 'phrase')}, such as {shorten(longest)}"
        )
    if out is not None:
        left = count_of(found.train_rows - len(found.matches), "row")
        lines.append(f"{out}: {left}; dropped rows are in {manifest_path(out)}")
    elif found.matches:
        lines.append("nothing was written; --out CLEAN.parquet writes the other rows")
    return "".join(f"{escape_controls(line)}\n" for line in lines)
