"""What `check_files` found: gathered by check, counted, and as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from verl_trgrpo.common.problems import Finding, Level, count_of
from verl_trgrpo.data.show import escape
from verl_trgrpo.data.tokens import Lengths

# In the order of the report; docs/data.md says what each looks for.
CHECKS = (
    *("file", "columns", "prompt", "message order", "chat tags", "index", "split", "data source", "ground truth"),
    *("reward of gold", "duplicates", "conflicts", "overlap", "concatenation", "chat template", "prompt length"),
)

OK = "ok"
MAX_EXAMPLES = 3
_INDENT = " " * 39


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one check.

    status: "ok", "warning", "error" or "not checked".
    affected: how many rows have a problem, or files where a check is about whole files.
    examples: the first different problems, errors before warnings, each with the place where it was met first.
    more: how many problems the examples do not tell of.
    note: why it was not checked, or in part only.
    """

    name: str
    status: str
    affected: int
    examples: list[str]
    more: int
    note: str


@dataclass
class _Check:
    status: str = Level.NOT_CHECKED.value
    affected: int = 0
    last: str = ""
    problems: int = 0
    # Level and message -> where it was met first, and how often.
    examples: dict[tuple[Level, str], tuple[str, int]] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)


class Gathered:
    """Gathers findings while rows go by, in memory that does not grow with their number."""

    def __init__(self) -> None:
        self._checks = {name: _Check() for name in CHECKS}

    def ran(self, *checks: str) -> None:
        """Note that checks looked at something."""
        for name in checks:
            if self._checks[name].status == Level.NOT_CHECKED.value:
                self._checks[name].status = OK

    def add_all(self, findings: Iterable[tuple[str, Finding]]) -> None:
        """Note findings, each with the name of its check."""
        for name, finding in findings:
            self.add(name, finding)

    def add(self, name: str, finding: Finding) -> None:
        """Note what check `name` found in a file or a row; several problems of a row count as one row affected."""
        check = self._checks[name]
        if finding.level is Level.NOT_CHECKED:
            # Rows share their reasons; files have their own.
            place = "" if " row " in finding.where or not finding.where else f"{finding.where}: "
            check.notes[place + finding.message] = None
            return
        if finding.level is Level.ERROR or check.status != Level.ERROR.value:
            check.status = finding.level.value
        check.affected += check.last != finding.where
        check.last = finding.where
        check.problems += 1
        key = finding.level, finding.message
        if key in check.examples or sum(level is finding.level for level, _ in check.examples) < MAX_EXAMPLES:
            first, count = check.examples.get(key, (finding.where, 0))
            check.examples[key] = first, count + 1

    def results(self) -> tuple[CheckResult, ...]:
        """Return one result for each of `CHECKS`, in their order."""
        return tuple(_result(name, check) for name, check in self._checks.items())


def _result(name: str, check: _Check) -> CheckResult:
    shown = sorted(check.examples.items(), key=lambda example: example[0][0] is not Level.ERROR)[:MAX_EXAMPLES]
    examples = [
        f"{where}{f' and {count - 1} more' if count > 1 else ''}: {message}" for (_, message), (where, count) in shown
    ]
    more = check.problems - sum(count for _, (_, count) in shown)
    return CheckResult(name, check.status, check.affected, examples, more, "; ".join(check.notes))


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

    def count(self, level: Level) -> int:
        """Return how many checks found nothing worse than `level`."""
        return sum(check.status == level.value for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "errors": self.count(Level.ERROR),
            "warnings": self.count(Level.WARNING),
            "not_checked": self.count(Level.NOT_CHECKED),
            "files": [asdict(facts) for facts in self.files],
            "checks": [asdict(check) for check in self.checks],
            "prompt_lengths": asdict(self.lengths) if self.lengths else None,
        }

    def render(self) -> str:
        """Return it as text: files, one line per check with its first examples, lengths, and the verdict."""
        lines = [
            f"{facts.path}: {count_of(facts.rows, 'row')}, {facts.role or 'train or test not known'}"
            for facts in self.files
        ]
        lines += ["", f"{'check':<16}{'result':<14}{'rows':>7}  first examples"]
        for check in self.checks:
            lines += _check_lines(check)
        if self.lengths:
            lines += ["", f"prompt lengths in {self.lengths.unit}: {_summary(self.lengths)}"]
        if self.lengths and len(self.files) > 1:
            lines += [f"  {facts.name}: {_summary(facts.lengths)}" for facts in self.files if facts.lengths]
        errors, warnings = count_of(self.count(Level.ERROR), "error"), count_of(self.count(Level.WARNING), "warning")
        lines += ["", f"{errors}, {warnings}, {self.count(Level.NOT_CHECKED)} not checked"]
        return "".join(f"{escape(line)}\n" for line in lines)


def _check_lines(check: CheckResult) -> list[str]:
    details = list(check.examples)
    if check.more:
        details.append(f"and {check.more} more")
    if check.note:
        details.append(check.note if check.status == Level.NOT_CHECKED.value else f"not checked: {check.note}")
    status = check.status.upper() if check.examples else check.status
    first = f"{check.name:<16}{status:<14}{check.affected or '':>7}  {details[0] if details else ''}".rstrip()
    return [first, *(_INDENT + detail for detail in details[1:])]


def _summary(lengths: Lengths) -> str:
    over = "" if lengths.over is None else f", {lengths.over} over the limit"
    return f"min {lengths.min}, median {lengths.median}, p95 {lengths.p95}, max {lengths.max}{over}"
