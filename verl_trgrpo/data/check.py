"""Are data files fit for a run? Checks what veRL's `RLHFDataset` and the rewards need, for anybody's parquet files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa

from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import count_of, text_table
from verl_trgrpo.data.escape import escape
from verl_trgrpo.data.options import CheckOptions
from verl_trgrpo.data.parquet import UnreadableError, display_names, extra_info_of, read_rows, read_schema
from verl_trgrpo.data.prompts import RowKey, row_keys
from verl_trgrpo.data.row_checks import ROW_CHECKS, TEST, TRAIN, Scan
from verl_trgrpo.data.sources import named_like_test
from verl_trgrpo.data.tokens import load_tokenizer

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


class Report:
    """What was found: a line on each file, and the findings of each check."""

    def __init__(self) -> None:
        self.files: list[str] = []
        # By check: level and message -> where it was met first, and how often.
        self._findings: dict[str, dict[tuple[Level, str], tuple[str, int]]] = defaultdict(dict)

    def add(self, check: str, findings: Iterable[Finding]) -> None:
        """Note what a check found."""
        for finding in findings:
            key = finding.level, finding.message
            first, count = self._findings[check].get(key, (finding.where, 0))
            self._findings[check][key] = first, count + 1

    @property
    def checks(self) -> list[CheckResult]:
        """One result per check, in the order of `CHECKS`."""
        return [self._result(name) for name in CHECKS]

    def count(self, level: Level) -> int:
        """Return how many checks found nothing worse than `level`."""
        return sum(check.status == level.value for check in self.checks)

    def render(self) -> str:
        """Return it as text: files with prompt lengths, one line per check with its first examples, and the verdict."""
        rows = []
        for check in self.checks:
            details = [*check.examples, *([check.note] if check.note else [])] or [""]
            status = check.status.upper() if check.examples else check.status
            rows.append([check.name, status, str(check.count or ""), details[0]])
            rows += [["", "", "", detail] for detail in details[1:]]
        table = text_table([[escape(cell) for cell in row] for row in rows], ["check", "result", "found", ""], "llrl")
        errors, warnings = count_of(self.count(Level.ERROR), "error"), count_of(self.count(Level.WARNING), "warning")
        verdict = f"{errors}, {warnings}, {self.count(Level.NOT_CHECKED)} not checked"
        return "\n".join([*map(escape, self.files), "", table, "", verdict, ""])

    def _result(self, name: str) -> CheckResult:
        ordered = sorted(self._findings[name].items(), key=lambda item: [*Level].index(item[0][0]))
        problems = [item for item in ordered if item[0][0] is not Level.NOT_CHECKED]
        examples = [
            f"{where}{f' and {count - 1} more' if count > 1 else ''}: {message}"
            for (_, message), (where, count) in problems[:MAX_EXAMPLES]
        ]
        status = ordered[0][0][0].value if ordered else "ok"
        note = "; ".join(message for (level, message), _ in ordered if level is Level.NOT_CHECKED)
        return CheckResult(name, status, sum(count for _, (_, count) in problems), examples, note)


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
    scan = Scan(rewards, not options.no_rewards, tokenizer, options.max_prompt_length)
    names = display_names([*options.train, *options.test])
    report = Report()
    # Train files first: test rows are compared with them as they go by.
    for role, paths in ((TRAIN, options.train), (TEST, options.test)):
        opened = _open({path: names[path] for path in paths}, report)
        # `datasets` leaves out files without rows.
        report.add(
            "columns", concatenation_findings({names[path]: schema for path, (schema, n) in opened.items() if n})
        )
        if not opened:
            report.add("overlap", [Finding.not_checked("", f"no {role} file; name one with --{role}")])
        for path, (_, count) in opened.items():
            scan.start_file(role)
            read = of_tests = 0
            try:
                for row in progress(read_rows(path), count, names[path]):
                    where = f"{names[path]} row {read}"
                    scan.start_row(row, row_keys(row, row_key))
                    for name, check in ROW_CHECKS.items():
                        report.add(name, check(row, where, scan))
                    scan.end_row(where)
                    read += 1
                    of_tests += extra_info_of(row).get("split") == "test"
            except UnreadableError as problem:
                report.add("file", [Finding.error(names[path], f"{problem} (after {read} rows)")])
            if role == TRAIN and (of_tests or named_like_test(path)):
                reason = (
                    f"{count_of(of_tests, 'row')} say split: test" if of_tests else "its name is that of a test file"
                )
                message = f"it is trained on, but {reason}; make sure that nothing is tested on it"
                report.add("file", [Finding.warning(names[path], message)])
            report.files.append(f"{path}: {count_of(read, 'row')}, {role}{_lengths(scan.lengths)}")
    if not scan.rows:
        for name in ROW_CHECKS:
            report.add(name, [Finding.not_checked("", "no rows were read")])
    return report


def _open(names: dict[Path, str], report: Report) -> dict[Path, tuple[pa.Schema, int]]:
    opened = {}
    for path, name in names.items():
        try:
            opened[path] = schema, count = read_schema(path)
        except UnreadableError as problem:
            report.add("file", [Finding.error(name, str(problem))])
            continue
        if not count:
            report.add("file", [Finding.error(name, "it has no rows")])
        report.add("columns", column_findings(name, schema))
    return opened


def _lengths(lengths: list[int]) -> str:
    """Return the smallest, middle and largest length as text; nothing without lengths."""
    if not lengths:
        return ""
    values = np.percentile(lengths, [0, 50, 95, 100], method="inverted_cdf")
    names = ("min", "median", "p95", "max")
    return f"; tokens of a prompt: {', '.join(f'{n} {v:.0f}' for n, v in zip(names, values, strict=True))}"


def column_findings(name: str, schema: pa.Schema) -> Iterator[Finding]:
    """Yield which columns veRL or the rewards need and a file has not; what is in them the checks of rows tell."""
    missing = [column for column in ("data_source", "prompt", "reward_model") if column not in schema.names]
    if missing:
        yield Finding.error(name, f"it has no {', '.join(missing)}; it has {', '.join(schema.names) or 'no columns'}")
    if "extra_info" not in schema.names:
        yield Finding.warning(name, "it has no extra_info; veRL then gives every row the index 0")
    elif not pa.types.is_struct(kind := schema.field("extra_info").type) and not pa.types.is_null(kind):
        yield Finding.error(name, f"extra_info is {kind}; veRL wants a struct, such as one with split and index")


def concatenation_findings(schemas: Mapping[str, pa.Schema]) -> Iterator[Finding]:
    """Yield which files (name -> schema) have columns of other types than the first, with which veRL concatenates them."""
    names = [*schemas]
    for name in names[1:]:
        if difference := first_difference(schemas[names[0]], schemas[name]):
            path, here, there = difference
            shown = f"{path} is {here} in {names[0]} and {there} here"
            if "missing" in (here, there):
                yield Finding.warning(name, f"{shown}; veRL fills in null")
            else:
                yield Finding.error(name, f"{shown}; veRL cannot load them together, cast one of them")


def first_difference(one: pa.Schema, other: pa.Schema) -> tuple[str, str, str] | None:
    """Return path and types where two schemas first differ, the order of fields aside; None where they do not.

    A type is "missing" where only the other schema has the field. Differing types come before missing fields.
    """
    ours, theirs = dict(_leaves("", pa.struct(list(one)))), dict(_leaves("", pa.struct(list(other))))
    pairs = [(path, ours.get(path, "missing"), theirs.get(path, "missing")) for path in dict.fromkeys([*ours, *theirs])]
    different = [pair for pair in pairs if pair[1] != pair[2] and "null" not in pair]
    return min(different, key=lambda pair: "missing" in pair, default=None)


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, str]]:
    """Yield the path of every field that has none below it, and its type."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}" if path else field.name, field.type)
    elif pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        yield from _leaves(f"{path}[]", kind.value_type)
    else:
        yield path, str(kind)
