"""Are data files fit for a run? Checks what veRL's `RLHFDataset` and the rewards need, for anybody's parquet files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from verl_trgrpo.common.problems import Finding, Level, count_of, error, not_checked
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.tables import text_table
from verl_trgrpo.data.columns import column_findings, concatenation_findings
from verl_trgrpo.data.options import CheckOptions
from verl_trgrpo.data.parquet import UnreadableError, display_names, read_rows, read_schema
from verl_trgrpo.data.prompts import RowKey, row_keys
from verl_trgrpo.data.row_checks import ROW_CHECKS, TEST, TRAIN, Scan, role_of
from verl_trgrpo.data.schema import CHAT_TAGS
from verl_trgrpo.data.show import escape
from verl_trgrpo.data.tokens import load_tokenizer, template_tags

# In the order of the report; docs/data.md says what each looks for.
CHECKS = ("file", "columns", *ROW_CHECKS)

MAX_EXAMPLES = 3


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one check.

    status: "ok", "warning", "error" or "not checked", in full or in part.
    count: how many problems were found.
    examples: the first different problems, errors before warnings, each with the place where it was met first.
    note: why it was not checked, or in part only.
    """

    name: str
    status: str
    count: int
    examples: list[str]
    note: str


@dataclass(frozen=True)
class FileFacts:
    """A checked file: path as given, rows read, and "train", "test" or None where that is not known.

    lengths: min, median, p95 (nearest rank) and max of its prompts in tokens of the rendered chat, with a tokenizer.
    """

    path: str
    rows: int
    role: str | None
    lengths: dict[str, int]


@dataclass(frozen=True)
class Report:
    """What was found: facts of the files, and one result per check."""

    files: tuple[FileFacts, ...]
    checks: tuple[CheckResult, ...]

    def count(self, level: Level) -> int:
        """Return how many checks found nothing worse than `level`."""
        return sum(check.status == level.value for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        counts = {"errors": Level.ERROR, "warnings": Level.WARNING, "not_checked": Level.NOT_CHECKED}
        return {name: self.count(level) for name, level in counts.items()} | asdict(self)

    def render(self) -> str:
        """Return it as text: files with prompt lengths, one line per check with its first examples, and the verdict."""
        lines = []
        for facts in self.files:
            lengths = ", ".join(f"{name} {length}" for name, length in facts.lengths.items())
            prompts = f"; tokens of a prompt: {lengths}" if lengths else ""
            lines.append(
                f"{facts.path}: {count_of(facts.rows, 'row')}, {facts.role or 'train or test not known'}{prompts}"
            )
        rows = []
        for check in self.checks:
            details = [*check.examples, *([check.note] if check.note else [])] or [""]
            status = check.status.upper() if check.examples else check.status
            rows.append([check.name, status, str(check.count or ""), details[0]])
            rows += [["", "", "", detail] for detail in details[1:]]
        table = text_table([[escape(cell) for cell in row] for row in rows], ["check", "result", "found", ""], "llrl")
        errors, warnings = count_of(self.count(Level.ERROR), "error"), count_of(self.count(Level.WARNING), "warning")
        verdict = f"{errors}, {warnings}, {self.count(Level.NOT_CHECKED)} not checked"
        return "\n".join([*map(escape, lines), "", table, "", verdict, ""])


def check_files(
    options: CheckOptions, rewards: ModuleType, row_key: RowKey, progress: Progress = no_progress
) -> Report:
    """Check the files of a run, row by row.

    Args:
        options: which files, and how.
        rewards: `verl_trgrpo.tasks`, or a module with the same functions.
        row_key: what a task knows of equal rows, see `RowKey`.
        progress: shows the work.

    Raises:
        ValueError: the tokenizer cannot be loaded.
    """
    tokenizer = load_tokenizer(options.tokenizer) if options.tokenizer else None
    tags = (*CHAT_TAGS, *(tag for tag in template_tags(tokenizer) if tag not in CHAT_TAGS)) if tokenizer else CHAT_TAGS
    scan = Scan(rewards, options.rewards, tokenizer, tags, options.max_prompt_length)
    names = display_names([*options.train, *options.test, *options.files])
    found = _Found()
    opened = _open(names, found)
    roles = {path: _role(path, names[path], options, found) for path in opened}
    for role in (TRAIN, TEST):
        # `datasets` leaves out files without rows.
        group = {names[path]: schema for path, (schema, count) in opened.items() if roles[path] == role and count}
        found.add("columns", concatenation_findings(group))
        if role not in roles.values():
            found.add("overlap", [not_checked("", f"no {role} file; name one with --{role}")])
    facts = {}
    # Train files first: test rows are compared with them as they go by.
    for path in sorted(opened, key=lambda path: (TRAIN, TEST, None).index(roles[path])):
        scan.start_file(str(path), roles[path])
        read = 0
        try:
            for row in progress(read_rows(path), opened[path][1], names[path]):
                where = f"{names[path]} row {read}"
                scan.start_row(row, row_keys(row, row_key))
                for name, check in ROW_CHECKS.items():
                    found.add(name, check(row, where, scan))
                scan.end_row(where)
                read += 1
        except UnreadableError as problem:
            found.add("file", [error(names[path], f"{problem} (after {read} rows)")])
        facts[path] = FileFacts(str(path), read, roles[path], _summary(scan.lengths))
    if not any(file.rows for file in facts.values()):
        for name in ROW_CHECKS:
            found.add(name, [not_checked("", "no rows were read")])
    return Report(tuple(facts[path] for path in names if path in facts), found.results())


class _Found:
    """Findings by check: level and message -> where it was met first, and how often."""

    def __init__(self) -> None:
        self._checks: dict[str, dict[tuple[Level, str], tuple[str, int]]] = defaultdict(dict)

    def add(self, check: str, findings: Iterable[Finding]) -> None:
        for finding in findings:
            key = finding.level, finding.message
            first, count = self._checks[check].get(key, (finding.where, 0))
            self._checks[check][key] = first, count + 1

    def results(self) -> tuple[CheckResult, ...]:
        return tuple(self._result(name) for name in CHECKS)

    def _result(self, name: str) -> CheckResult:
        ordered = sorted(self._checks[name].items(), key=lambda item: [*Level].index(item[0][0]))
        problems = [item for item in ordered if item[0][0] is not Level.NOT_CHECKED]
        examples = [
            f"{where}{f' and {count - 1} more' if count > 1 else ''}: {message}"
            for (_, message), (where, count) in problems[:MAX_EXAMPLES]
        ]
        status = ordered[0][0][0].value if ordered else "ok"
        note = "; ".join(message for (level, message), _ in ordered if level is Level.NOT_CHECKED)
        return CheckResult(name, status, sum(count for _, (_, count) in problems), examples, note)


def _open(names: dict[Path, str], found: _Found) -> dict[Path, tuple[pa.Schema, int]]:
    opened = {}
    for path, name in names.items():
        try:
            opened[path] = schema, count = read_schema(path)
        except UnreadableError as problem:
            found.add("file", [error(name, str(problem))])
            continue
        if not count:
            found.add("file", [error(name, "it has no rows")])
        found.add("columns", column_findings(name, schema))
    return opened


def _role(path: Path, name: str, options: CheckOptions, found: _Found) -> str | None:
    """Return the part of a file in the run: as given, else the one that its first row names."""
    if path in options.train or path in options.test:
        return TRAIN if path in options.train else TEST
    try:
        role = next(map(role_of, read_rows(path, ["extra_info"])), None)
    except UnreadableError:
        return None  # `check_files` meets the same damage and reports it
    if role is None:
        found.add("overlap", [not_checked("", f"{name} has no split in its first row; use --train or --test")])
    return role


def _summary(lengths: list[int]) -> dict[str, int]:
    if not lengths:
        return {}
    values = np.percentile(lengths, [0, 50, 95, 100], method="inverted_cdf")
    return dict(zip(("min", "median", "p95", "max"), map(int, values), strict=True))
