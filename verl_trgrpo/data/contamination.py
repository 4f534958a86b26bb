"""Which train prompts are test prompts?

A train row is contaminated by a test row if one of these holds:

- equal prompts, after `normalize.normalize_text`;
- equal Knights-and-Knaves puzzles, names aside, where both rows carry statements;
- overlap: instructions left out (`boilerplate`), at least the share `threshold` of the test prompt's words lies in runs of
  `ngram` words (n-grams) that occur in the train prompt, too. Runs that many prompts have in common do not count at all.
  A test prompt without any run that counts, because it is short for example, has to equal the whole train prompt, word
  by word. Two rows with statements are not compared in this way: puzzles share their phrases, and the statements decide.

The share is one of words, not of n-grams: one changed word in a prompt of 60 spoils 13 of its 48 n-grams but leaves 59
words in common. 13 words and 0.8 are the values of well-known contamination analyses of language models.

Train files are read twice, row by row; memory grows with the test files and the rows found, not with the train file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data.boilerplate import Boilerplate, Run, Words, frequent_runs, runs
from verl_trgrpo.data.checks import files
from verl_trgrpo.data.normalize import normalize_text, prompt_text, row_keys, words_of

EQUAL_PROMPT, EQUAL_PUZZLE, OVERLAP = "equal prompt", "equal puzzle", "overlap"

# Prompts of a train file that instructions are learned from, evenly spaced.
_SAMPLE = 5000


@dataclass(frozen=True)
class ContaminationOptions:
    """What to compare, and how strictly.

    train: a parquet file; tests: one or more others.
    ngram: words in a run, from 1.
    threshold: share of a test prompt's words, above 0, at most 1.

    Raises ValueError for files that do not exist, the train file among the tests, and numbers out of range.
    """

    train: Path
    tests: tuple[Path, ...]
    ngram: int = 13
    threshold: float = 0.8

    def __post_init__(self) -> None:
        problems = [] if self.tests else ["no test file is given; name at least one"]
        problems += [
            f"{path} is not a file; check the path" for path in (self.train, *self.tests) if not path.is_file()
        ]
        places = [path.resolve() for path in (self.train, *self.tests)]
        if len(set(places)) < len(places):
            problems.append("a file is given twice; name the train file and each test file once")
        if self.ngram < 1:
            problems.append(f"ngram is {self.ngram}; it must be at least 1 word")
        if not 0 < self.threshold <= 1:
            problems.append(f"threshold is {self.threshold}; it must be above 0 and at most 1")
        raise_problems(problems)


@dataclass(frozen=True)
class Match:
    """A contaminated train row and the test row that it matches best; rows count from 0.

    reason: "equal prompt", "equal puzzle" or "overlap"; share: of the test prompt's words, 1.0 for equal ones.
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


@dataclass(frozen=True)
class _Prompt:
    """A row as far as it matters: keys of equality (none: nothing to compare), words, data source."""

    keys: tuple[str, ...]
    words: Words
    source: str

    @property
    def is_puzzle(self) -> bool:
        return any(key.startswith("puzzle:") for key in self.keys)


def find_contamination(options: ContaminationOptions, progress: Progress = no_progress) -> Contamination:
    """Return the rows of the train file that match a row of a test file.

    Raises ValueError for a file that cannot be read.
    """
    names = files.display_names([*options.tests, options.train])
    boilerplate = Boilerplate()
    train_sample = list(_prompts(options.train, progress, f"{names[options.train]} (instructions)", sample=_SAMPLE))
    tests = {names[path]: list(_prompts(path, progress, names[path])) for path in options.tests}
    samples = [train_sample, *tests.values()]
    groups = [group for prompts in samples for group in _by_source(prompts)]
    for group in groups:
        boilerplate.learn(group)
    index = _TestIndex(tests, boilerplate, options)
    common: set[Run] = set()
    for group in groups:
        common |= frequent_runs(map(boilerplate.strip, group), options.ngram, index.runs)
    index.drop(common)
    matches: list[Match] = []
    hit: set[int] = set()
    train_rows = 0
    for row, prompt in enumerate(_prompts(options.train, progress, names[options.train])):
        train_rows += 1
        found = index.find(prompt)
        if found:
            hit.update(found)
            best = max(found, key=lambda test: (found[test][1], found[test][0] != OVERLAP, -test))
            matches.append(Match(row, *found[best], *index.places[best]))
    hits = {name: sum(index.places[test][0] == name for test in hit) for name in tests}
    return Contamination(train_rows, tuple(matches), {name: len(rows) for name, rows in tests.items()}, hits)


class _TestIndex:
    """The test prompts, to be looked up by equality and by runs of words. Tests are numbered through all files."""

    def __init__(
        self, tests: Mapping[str, list[_Prompt]], boilerplate: Boilerplate, options: ContaminationOptions
    ) -> None:
        self._boilerplate, self._options = boilerplate, options
        self.places = [(name, row) for name, prompts in tests.items() for row in range(len(prompts))]
        self._prompts = [prompt for prompts in tests.values() for prompt in prompts]
        self._by_key: dict[str, list[int]] = defaultdict(list)
        self._by_words: dict[tuple[str, ...], list[int]] = defaultdict(list)
        self._by_run: dict[Run, list[tuple[int, int]]] = defaultdict(list)
        for test, prompt in enumerate(self._prompts):
            for key in prompt.keys:
                self._by_key[key].append(test)
            words = boilerplate.strip(prompt.words)
            if words:
                self._by_words[tuple(words)].append(test)
            for position, run in enumerate(runs(words, options.ngram)):
                self._by_run[run].append((test, position))
        self._count: dict[int, int] = {}

    @property
    def runs(self) -> Collection[Run]:
        return self._by_run.keys()

    def drop(self, common: set[Run]) -> None:
        """Leave out the runs that are instructions, and count the words that each test prompt has in the others."""
        for run in common:
            self._by_run.pop(run, None)
        starts: dict[int, set[int]] = defaultdict(set)
        for places in self._by_run.values():
            for test, position in places:
                starts[test].add(position)
        self._count = {test: self._covered(positions) for test, positions in starts.items()}

    def find(self, prompt: _Prompt) -> dict[int, tuple[str, float]]:
        """Return test -> (reason, share) for every test prompt that the train prompt matches."""
        found: dict[int, tuple[str, float]] = {}
        for key in prompt.keys:
            for test in self._by_key.get(key, ()):
                found.setdefault(test, (EQUAL_PROMPT if key.startswith("text:") else EQUAL_PUZZLE, 1.0))
        words = self._boilerplate.strip(prompt.words)
        candidates = dict.fromkeys(self._by_words.get(tuple(words), ()), 1.0)
        starts: dict[int, set[int]] = defaultdict(set)
        for run in runs(words, self._options.ngram):
            for test, position in self._by_run.get(run, ()):
                starts[test].add(position)
        for test, positions in starts.items():
            candidates.setdefault(test, self._covered(positions) / self._count[test])
        for test, share in candidates.items():
            if share >= self._options.threshold and not (prompt.is_puzzle and self._prompts[test].is_puzzle):
                found.setdefault(test, (OVERLAP, round(share, 4)))
        return found

    def _covered(self, positions: set[int]) -> int:
        """Return how many words lie in the runs that begin at `positions`."""
        size, end, covered = self._options.ngram, 0, 0
        for position in sorted(positions):
            covered += position + size - max(position, end)
            end = position + size
        return covered


def _prompts(path: Path, progress: Progress, label: str, sample: int | None = None) -> Iterator[_Prompt]:
    """Yield the prompts of a file, all or about `sample` of them, evenly spaced."""
    try:
        schema, count = files.read_schema(path)
        if "prompt" not in schema.names:
            raise ValueError(f"{path} has no column prompt; it has {', '.join(schema.names)}")
        step = max(1, count // sample) if sample else 1
        columns = ["data_source", "prompt", "extra_info.statements", "reward_model.ground_truth"]
        for number, row in enumerate(progress(files.read_rows(path, columns), count, label)):
            if number % step == 0:
                words = words_of(normalize_text(prompt_text(row.get("prompt"))))
                yield _Prompt(row_keys(row), words, str(row.get("data_source")))
    except files.UnreadableError as error:
        raise ValueError(f"{path}: {error}") from error


def _by_source(prompts: list[_Prompt]) -> list[list[Words]]:
    groups: dict[str, list[Words]] = defaultdict(list)
    for prompt in prompts:
        groups[prompt.source].append(prompt.words)
    return list(groups.values())
