"""Are data files fit for a run? Checks what veRL's `RLHFDataset` and the rewards need, for anybody's parquet files."""

from __future__ import annotations

from array import array
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data.checks import files
from verl_trgrpo.data.checks.duplicates import PromptIndex
from verl_trgrpo.data.checks.findings import ERROR, NOT_CHECKED, WARNING, CheckResult, Findings
from verl_trgrpo.data.checks.golds import GoldCheck, import_external_modules
from verl_trgrpo.data.checks.lengths import Lengths, PromptLengths, load_tokenizer, summarize, template_tags
from verl_trgrpo.data.checks.rows import (
    SPLITS,
    TEST,
    TRAIN,
    check_data_source,
    check_extra_info,
    check_ground_truth,
    check_prompt,
)


@dataclass(frozen=True)
class CheckOptions:
    """What to check.

    files: parquet files whose part in the run follows from their extra_info.split.
    train, test: parquet files whose part in the run is given.
    tokenizer: directory of a tokenizer with a chat template; without it lengths are in characters.
    max_prompt_length: limit in tokens, from 1; it needs the tokenizer.
    rewards: whether to score a right response of every row.

    Raises ValueError for files that do not exist, none at all, one given twice, or a limit below 1.
    """

    files: tuple[Path, ...] = ()
    train: tuple[Path, ...] = ()
    test: tuple[Path, ...] = ()
    tokenizer: Path | None = None
    max_prompt_length: int | None = None
    rewards: bool = True

    def __post_init__(self) -> None:
        given = [*self.files, *self.train, *self.test]
        problems = [] if given else ["no file is given; name one or more parquet files"]
        problems += [f"{path} is not a file; check the path" for path in dict.fromkeys(given) if not path.is_file()]
        places = [path.resolve() for path in given]
        twice = [str(path) for path, place in zip(given, places, strict=True) if places.count(place) > 1]
        if twice:
            problems.append(f"given more than once: {', '.join(dict.fromkeys(twice))}; name each file once")
        if self.max_prompt_length is not None and self.max_prompt_length < 1:
            problems.append(f"max_prompt_length is {self.max_prompt_length}; it must be at least 1 token")
        raise_problems(problems)


@dataclass(frozen=True)
class FileFacts:
    """A checked file: path as given, short name, rows read, and "train", "test" or None where that is not known."""

    path: str
    name: str
    rows: int
    role: str | None
    lengths: Lengths | None


@dataclass(frozen=True)
class Report:
    """What was found: facts of the files, one result per check, and the lengths of all prompts."""

    files: tuple[FileFacts, ...]
    checks: tuple[CheckResult, ...]
    lengths: Lengths | None

    @property
    def errors(self) -> int:
        """Return how many checks found errors."""
        return sum(check.status == ERROR for check in self.checks)

    @property
    def warnings(self) -> int:
        """Return how many checks found nothing worse than warnings."""
        return sum(check.status == WARNING for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "errors": self.errors,
            "warnings": self.warnings,
            "not_checked": sum(check.status == NOT_CHECKED for check in self.checks),
            "files": [asdict(facts) for facts in self.files],
            "checks": [asdict(check) for check in self.checks],
            "prompt_lengths": self.lengths.as_dict() if self.lengths else None,
        }


def check_files(options: CheckOptions, progress: Progress = no_progress) -> Report:
    """Check the files of a run; every file is read once, row by row.

    Raises ValueError for a tokenizer or a module in VERL_USE_EXTERNAL_MODULES that cannot be loaded.
    """
    tokenizer = load_tokenizer(options.tokenizer) if options.tokenizer else None
    if options.rewards:
        import_external_modules()
    return _Check(options, tokenizer, progress).run()


class _Check:
    def __init__(self, options: CheckOptions, tokenizer: Any, progress: Progress) -> None:
        self.options, self.tokenizer, self.progress = options, tokenizer, progress
        self.findings = Findings()
        self.golds = GoldCheck(self.findings)
        self.prompts = PromptIndex(self.findings)
        self.tags = template_tags(tokenizer) if tokenizer else ()
        paths = [*options.train, *options.test, *options.files]
        self.names = files.display_names(paths)
        self.facts: dict[Path, FileFacts] = {}
        self.all_lengths = array("Q")

    def run(self) -> Report:
        opened = self._open()
        roles = {path: self._role(path) for path in opened}
        self._concatenation(opened, roles)
        # Train files first: test rows are compared with them as they go by.
        for path in sorted(opened, key=lambda path: (TRAIN, TEST, None).index(roles[path])):
            self._rows(path, opened[path][1], roles[path])
        self._explain(roles)
        unit = "tokens" if self.tokenizer else "characters"
        limit = self.options.max_prompt_length if self.tokenizer else None
        facts = tuple(self.facts[path] for path in self.names if path in self.facts)
        return Report(facts, tuple(self.findings.results()), summarize(self.all_lengths, unit, limit))

    def _open(self) -> dict[Path, tuple[pa.Schema, int]]:
        opened = {}
        for path, name in self.names.items():
            self.findings.ran("file")
            try:
                schema, count = files.read_schema(path)
            except files.UnreadableError as error:
                self.findings.add("file", ERROR, name, str(error))
                continue
            if not count:
                self.findings.add("file", ERROR, name, "it has no rows")
            files.check_columns(name, schema, self.findings)
            if len(set(schema.names)) == len(schema.names):
                opened[path] = (schema, count)
        return opened

    def _role(self, path: Path) -> str | None:
        """Return the part of a file in the run: as given, else the one that all its rows name."""
        if path in self.options.train:
            return TRAIN
        if path in self.options.test:
            return TEST
        roles = set()
        try:
            for row in files.read_rows(path, ["extra_info.split"]):
                extra_info = row.get("extra_info")
                split = extra_info.get("split") if isinstance(extra_info, dict) else None
                roles.add(SPLITS.get(split) if isinstance(split, str) else None)
        except files.UnreadableError:
            return None  # `_rows` meets the same damage and reports it
        role = roles.pop() if len(roles) == 1 else None
        if role is None:
            self.findings.skipped("split", f"{self.names[path]}: no single split in its rows; use --train or --test")
        return role

    def _concatenation(self, opened: dict[Path, tuple[pa.Schema, int]], roles: dict[Path, str | None]) -> None:
        for role in (TRAIN, TEST):
            # `datasets` leaves out files without rows.
            group = {self.names[p]: schema for p, (schema, count) in opened.items() if roles[p] == role and count}
            if group:
                files.check_concatenation(role, group, self.findings)
        for path in opened:
            if roles[path] is None:
                self.findings.skipped("concatenation", f"{self.names[path]}: train or test is not known")

    def _rows(self, path: Path, count: int, role: str | None) -> None:
        name, read = self.names[path], 0
        lengths = PromptLengths(self.tokenizer, self.options.max_prompt_length, self.findings)
        indices: set[Any] = set()
        try:
            for row in self.progress(files.read_rows(path), count, name):
                self._row(row, f"{name} row {read}", role, role or f"file {path}", indices, lengths)
                read += 1
        except files.UnreadableError as error:
            self.findings.add("file", ERROR, name, f"{error} (after {read} rows)")
        lengths.finish()
        self.all_lengths.extend(lengths.lengths)
        self.facts[path] = FileFacts(
            str(path), name, read, role, summarize(lengths.lengths, lengths.unit, lengths.limit)
        )

    def _row(
        self, row: dict[str, Any], where: str, role: str | None, group: str, indices: set[Any], lengths: PromptLengths
    ) -> None:
        usable = check_prompt(row, where, self.tags, self.findings)
        check_extra_info(row, where, role, indices, self.findings)
        check_data_source(row, where, self.findings)
        has_truth = check_ground_truth(row, where, self.findings)
        if has_truth and self.options.rewards:
            self.golds.check(row, where)
        self.prompts.add(row, group, where)
        if usable:
            lengths.add(row, where)

    def _explain(self, roles: dict[Path, str | None]) -> None:
        """Say why checks were not made."""
        absent = [role for role in (TRAIN, TEST) if role not in roles.values()]
        if absent:
            self.findings.skipped("overlap", f"no {' and no '.join(absent)} file; name them with --train and --test")
        if not self.options.rewards:
            self.findings.skipped("reward of gold", "--no-rewards")
        if self.tokenizer is None:
            self.findings.skipped("chat template", "no --tokenizer")
            given = self.options.max_prompt_length is not None
            self.findings.skipped(
                "prompt length", "--max-prompt-length needs --tokenizer" if given else "no --tokenizer"
            )
        elif self.options.max_prompt_length is None:
            self.findings.skipped("prompt length", "no --max-prompt-length")
