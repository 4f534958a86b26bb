"""What the checks found, gathered by check."""

from __future__ import annotations

from dataclasses import dataclass, field

OK, WARNING, ERROR, NOT_CHECKED = "ok", "warning", "error", "not checked"

# In the order of the report, each with the question that it answers.
CHECKS = {
    "file": "can the file be read as parquet, and has it rows?",
    "columns": "are the columns that veRL reads there, with the types it needs?",
    "prompt": "is every prompt a list of messages with known roles and some text, the user's last?",
    "message order": "do user and assistant take turns, after at most one system message?",
    "chat tags": "are prompts free of tags that the chat template adds?",
    "index": "does extra_info.index name every row of a file?",
    "split": "does extra_info.split agree with how the file is used?",
    "data source": "is there a reward for every data source?",
    "ground truth": "has every row a ground truth of text?",
    "reward of gold": "does a response that states the ground truth get full marks?",
    "duplicates": "is every prompt there once?",
    "conflicts": "have equal prompts equal ground truths?",
    "overlap": "are train and test files without common prompts?",
    "concatenation": "can veRL concatenate the files of a run?",
    "chat template": "does the tokenizer's chat template accept every prompt?",
    "prompt length": "are prompts short enough?",
}

MAX_EXAMPLES = 3


@dataclass
class CheckResult:
    """The outcome of one check.

    status: "ok", "warning", "error" or "not checked".
    affected: how many rows have a problem, or files where a check is about whole files.
    examples: the first different problems, errors before warnings, each with the place where it was met first.
    more: how many problems the examples do not tell of.
    note: why it was not checked, or in part only.
    """

    name: str
    status: str = NOT_CHECKED
    affected: int = 0
    examples: list[str] = field(default_factory=list)
    more: int = 0
    note: str = ""


class Findings:
    """Gathers problems while rows go by, in memory that does not grow with their number."""

    def __init__(self) -> None:
        self._status: dict[str, str] = {}
        self._affected: dict[str, int] = dict.fromkeys(CHECKS, 0)
        self._last: dict[str, object] = {}
        # Problem -> where it was met first, and how often.
        self._examples: dict[tuple[str, str], dict[str, tuple[str, int]]] = {}
        self._problems: dict[str, int] = dict.fromkeys(CHECKS, 0)
        self._notes: dict[str, dict[str, None]] = {name: {} for name in CHECKS}

    def ran(self, check: str) -> None:
        """Note that a check looked at something."""
        self._status.setdefault(check, OK)

    def skipped(self, check: str, reason: str) -> None:
        """Note that a check could not look at something, and why."""
        self._notes[check][reason] = None

    def add(self, check: str, severity: str, where: str, problem: str) -> None:
        """Note a problem of `where`, a file or a row; several problems of one row in a row count as one row affected."""
        self.ran(check)
        if severity == ERROR or self._status[check] == OK:
            self._status[check] = severity
        if self._last.get(check) != where:
            self._affected[check] += 1
            self._last[check] = where
        self._problems[check] += 1
        examples = self._examples.setdefault((check, severity), {})
        if problem in examples or len(examples) < MAX_EXAMPLES:
            first, count = examples.get(problem, (where, 0))
            examples[problem] = first, count + 1

    def results(self) -> list[CheckResult]:
        """Return one result for each of `CHECKS`, in their order."""
        return [self._result(name) for name in CHECKS]

    def _result(self, check: str) -> CheckResult:
        shown = [
            (f"{where}{f' and {count - 1} more' if count > 1 else ''}: {problem}", count)
            for severity in (ERROR, WARNING)
            for problem, (where, count) in self._examples.get((check, severity), {}).items()
        ][:MAX_EXAMPLES]
        return CheckResult(
            check,
            self._status.get(check, NOT_CHECKED),
            self._affected[check],
            [text for text, _ in shown],
            self._problems[check] - sum(count for _, count in shown),
            "; ".join(self._notes[check]),
        )
