"""Check that data files have what veRL's `RLHFDataset` and the rewards need; any files, not only those built here.

One of the checks scores responses that state a row's ground truth: they should get full marks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from omegaconf import OmegaConf

from verl_trgrpo.common.findings import Level
from verl_trgrpo.common.options import Options
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import count_of, escape_controls, one_line, text_table
from verl_trgrpo.data.prompts import MOST_PROMPTS, RolloutPrompts, prompt_settings
from verl_trgrpo.data.questions.ask import Questions, open_data_file
from verl_trgrpo.data.questions.context import TEST_ROLE, TRAIN_ROLE, Context, DataQuestion
from verl_trgrpo.data.rows import RawRow, display_names, file_problems, is_chat
from verl_trgrpo.data.verl_files import DataFile, data_paths
from verl_trgrpo.judge.answer_form import asked_form
from verl_trgrpo.tasks.ground_truths import TaskKnowledge
from verl_trgrpo.tasks.registry import default_reward_problem, has_reward, import_external_modules, known_agents

TEMPLATE, LENGTH = "chat template", "prompt length"
"""What a tokenizer answers, beside the questions about rows and files."""
CHECKS = (*(question.value for question in DataQuestion), TEMPLATE, LENGTH)

_MAX_EXAMPLES = 3


@dataclass(frozen=True)
class CheckOptions(Options):
    """Files to check.

    Args:
        train: files to train on (.parquet, .json, .jsonl), or patterns in quotes, as in data.train_files.
        test: files to test on, or patterns.
        tokenizer: local directory of a model; prompt lengths are then in tokens of its chat template.
        template: NAME=VALUE options of the chat template, as in data.apply_chat_template_kwargs.
        max_prompt_length: limit in tokens; needs the tokenizer.
        prompt_key: column of the prompts, veRL's data.prompt_key.
        reward: data source whose reward scores rows of data sources without a reward.
        no_rewards: do not check that each data source has a reward, and that a response with the ground truth gets full
            marks.
        strict: warnings give exit code 1, too.
        all: print every finding with its row, not the first three different ones of each check.
    """

    train: tuple[Path, ...] = ()
    test: tuple[Path, ...] = ()
    tokenizer: Path | None = None
    template: tuple[str, ...] = ()
    max_prompt_length: Annotated[int | None, "[1, inf)"] = None
    prompt_key: str = "prompt"
    reward: str | None = None
    no_rewards: bool = False
    strict: bool = False
    all: bool = False

    def __post_init__(self) -> None:
        for name in ("train", "test"):
            object.__setattr__(self, name, data_paths(getattr(self, name)))
        super().__post_init__()

    def problems(self) -> list[str]:
        """Return a message for each problem of files, tokenizer and reward."""
        given = [*self.train, *self.test]
        messages = [] if given else ["no file is given; name Parquet files with --train and --test"]
        messages += file_problems(given)
        if self.tokenizer is not None and not self.tokenizer.is_dir():
            messages.append(f"tokenizer={self.tokenizer} is not a directory; give the directory of a local model")
        if self.template and self.tokenizer is None:
            messages.append(f"template={' '.join(self.template)}: needs a tokenizer; give one with --tokenizer")
        import_external_modules()  # which may bring rewards
        if problem := default_reward_problem(self.reward):
            messages.append(f"reward={self.reward}: {problem}")
        if self.reward and self.no_rewards:
            messages.append(f"reward={self.reward}: --no-rewards uses no reward; leave one of the two out")
        return messages

    @property
    def prompts(self) -> RolloutPrompts | None:
        """Return what makes token ids of prompts, None without a tokenizer. Raises a ValueError if that cannot be loaded."""
        if self.tokenizer is None:
            return None
        options = {"apply_chat_template_kwargs": OmegaConf.from_dotlist([*self.template])}
        return RolloutPrompts(prompt_settings(OmegaConf.create({"data": options}), str(self.tokenizer)))


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one check: its name, status, number of errors and warnings, the first different ones or all, and a note.

    The status is "ok", "warning", "error", or "not checked" (at least partly, as the note says why).
    """

    name: str
    status: str
    count: int
    examples: list[str]
    note: str


@dataclass
class DataReport:
    """Collect a line about each file and the findings of each check.

    Args:
        every_finding: show each finding with its place, not the first different ones.
        files: a line about each.
        different_prompts: how many of how many rows.
        forms: how many prompts ask for each form of answer, or for none.
        rewards: how many rows are scored by the reward of each data source, and by ``--reward``.
        findings: by check, the places of each level and message.
    """

    every_finding: bool = False
    files: list[str] = field(default_factory=list)
    different_prompts: str = ""
    forms: Counter[str] = field(default_factory=Counter)
    rewards: Counter[str] = field(default_factory=Counter)
    findings: dict[str, dict[tuple[Level, str], list[str]]] = field(default_factory=dict)

    def add(self, check: str, level: Level, message: str, place: str) -> None:
        """Add a finding of a check."""
        self.findings.setdefault(check, {}).setdefault((level, message), []).append(place)

    def skip(self, checks: Iterable[str], reason: str) -> None:
        """Add that checks were not made, at least not for all files and rows."""
        for check in checks:
            self.add(check, Level.NOT_CHECKED, reason, "")

    @property
    def checks(self) -> list[CheckResult]:
        """Return one result per check, in the order of `CHECKS`."""
        return [self._result(name) for name in CHECKS]

    def count(self, level: Level) -> int:
        """Return how many checks have `level` as their worst finding."""
        return sum(check.status == level.value for check in self.checks)

    def render(self) -> str:
        """Return the report for a terminal: files, one line per check with its first examples, and a summary."""
        rows = []
        for check in self.checks:
            first, *others = [*check.examples, *([check.note] if check.note else [])] or [""]
            status = check.status.upper() if check.examples else check.status
            rows.append([check.name, status, str(check.count or ""), first])
            rows += [["", "", "", detail] for detail in others]
        cells = [[escape_controls(cell) for cell in row] for row in rows]
        table = text_table(cells, ["check", "result", "found", ""], "llrl")
        errors, warnings = count_of(self.count(Level.ERROR), "error"), count_of(self.count(Level.WARNING), "warning")
        summary = f"{errors}, {warnings}, {self.count(Level.NOT_CHECKED)} not checked"
        prompts = [f"different prompts: {self.different_prompts}"] if self.different_prompts else []
        for what, found in (("rows by their reward", self.rewards), ("answer forms that prompts ask for", self.forms)):
            counts = ", ".join(f"{name} {count:,}" for name, count in found.most_common())
            prompts += [f"{what}: {counts}"] if counts else []
        return "\n".join([*map(escape_controls, self.files), "", table, "", *prompts, summary, ""])

    def _result(self, name: str) -> CheckResult:
        ordered = sorted(self.findings.get(name, {}).items(), key=lambda item: [*Level].index(item[0][0]))
        problems = [item for item in ordered if item[0][0] is not Level.NOT_CHECKED]
        if self.every_finding:
            examples = [f"{where}: {message}" for (_, message), places in problems for where in places]
        else:
            examples = [
                f"{places[0]}{f' and {len(places) - 1} more' if len(places) > 1 else ''}: {message}"
                for (_, message), places in problems[:_MAX_EXAMPLES]
            ]
        status = ordered[0][0][0].value if ordered else "ok"
        note = "; ".join(message for (level, message), _ in ordered if level is Level.NOT_CHECKED)
        return CheckResult(name, status, sum(len(places) for _, places in problems), examples, note)


def check_files(options: CheckOptions, progress: Progress = no_progress) -> DataReport:
    """Check the files of a run, row by row. Raises a ValueError if the tokenizer cannot be loaded."""
    prompts = options.prompts
    names = display_names([*options.train, *options.test])
    report = DataReport(options.all)
    if options.no_rewards:
        without = (DataQuestion.SOURCE, DataQuestion.GOLD, DataQuestion.LITERAL)
        report.skip((question.value for question in without), "--no-rewards; leave out this option")
    if prompts is None:
        report.skip((TEMPLATE,), "no tokenizer; give the directory of a model with --tokenizer")
    if prompts is None or options.max_prompt_length is None:
        report.skip((LENGTH,), "no limit, or no tokenizer; give --tokenizer and --max-prompt-length")
    # A run may have agent loops of its own.
    tasks = TaskKnowledge(options.reward, not options.no_rewards)
    questions = Questions(Context(tasks, known_agents(), Level.WARNING))
    for role, paths in ((TRAIN_ROLE, options.train), (TEST_ROLE, options.test)):
        files = {names[path]: open_data_file(path) for path in paths}
        if not any(isinstance(file, DataFile) for file in files.values()):
            report.skip((DataQuestion.OVERLAP.value,), f"no {role} file; name one with --{role}")
        watch = _Watch(report, role, options, PromptLengths(prompts, options.max_prompt_length), progress)
        for found in questions.files(role, files, options.prompt_key, watch):
            place = "" if found.level is Level.NOT_CHECKED else found.place
            report.add(found.question.value, found.level, found.message, place)
            watch.literal[found.file] += found.question is DataQuestion.LITERAL and found.row is not None
        report.files += watch.lines()
        if watch.rows:
            different = f"{questions.different_prompts(role):,} of {watch.rows.total():,} {role} rows"
            report.different_prompts = ", ".join(filter(None, [report.different_prompts, different]))
    if not report.different_prompts:
        report.skip(CHECKS[2:], "no rows were read; correct the files")
    return report


class _Watch:
    """Look at the rows of a role's files as they are asked: count them, and measure their prompts."""

    def __init__(
        self, report: DataReport, role: str, options: CheckOptions, lengths: PromptLengths, progress: Progress
    ) -> None:
        self._report, self._role, self._options, self._progress = report, role, options, progress
        self._lengths = lengths
        self._summaries: dict[str, str] = {}
        self._paths: dict[str, Path] = {}
        self.rows: Counter[str] = Counter()
        self.literal: Counter[str] = Counter()

    def __call__(self, name: str, file: DataFile, rows: Iterator[RawRow]) -> Iterator[RawRow]:
        """Yield the rows of a file, and count them."""
        self._paths[name] = file.path
        self.rows[name] = 0
        chosen = self._options.reward
        if chosen and not self._options.no_rewards:
            self._report.rewards[f"--reward {chosen}"] += 0  # an option that scores no row is told with 0
        try:
            for number, row in enumerate(self._progress(rows, file.rows, name)):
                self.rows[name] += 1
                if is_chat(row.get("prompt")):
                    self._report.forms[asked_form(row["prompt"]) or "none"] += 1
                    self._lengths.add(row, f"{name} row {number}", self._report)
                if not self._options.no_rewards:
                    self._count_reward(row.get("data_source"), chosen)
                yield row
        finally:
            self._lengths.rest(self._report)
            self._summaries[name] = self._lengths.summary()

    def _count_reward(self, source: Any, chosen: str | None) -> None:
        if has_reward(source, chosen):
            has_own = has_reward(source or None)  # a data source without a name has the chosen one
            self._report.rewards[f"--reward {chosen}" if chosen and not has_own else one_line(source, 60)] += 1

    def lines(self) -> Iterator[str]:
        """Yield the line about each file."""
        for name, rows in self.rows.items():
            line = f"{self._paths[name]}: {count_of(rows, 'row')}, {self._role}{self._summaries[name]}"
            if literal := self.literal[name]:
                line += f"; {count_of(literal, 'ground truth')} only compared literally ({literal / rows:.1%})"
            yield line


class PromptLengths:
    """Measure prompts in tokens of a tokenizer's chat template, many at a time; nothing without `prompts`, which makes them."""

    def __init__(self, prompts: RolloutPrompts | None, limit: int | None) -> None:
        self._prompts, self._limit = prompts, limit
        self._waiting: list[tuple[RawRow, str]] = []
        self._lengths: list[int] = []

    def add(self, row: RawRow, place: str, report: DataReport) -> None:
        """Ask whether the chat template takes the prompt, and whether it is too long."""
        self._waiting.append((row, place))
        if len(self._waiting) == MOST_PROMPTS:
            self.rest(report)

    def rest(self, report: DataReport) -> None:
        """Ask of the prompts that wait."""
        waiting, self._waiting = self._waiting, []
        found = self._prompts.lengths(row for row, _ in waiting) if self._prompts else ()
        for length, (_, place) in zip(found, waiting, strict=bool(self._prompts)):
            if isinstance(length, str):
                report.add(TEMPLATE, Level.ERROR, length, place)
                continue
            self._lengths.append(length)
            if self._limit is not None and length > self._limit:
                drops = "or drops it with data.filter_overlong_prompts=true"
                message = f"longer than {self._limit} tokens; veRL cuts it from the left, {drops}"
                report.add(LENGTH, Level.WARNING, message, place)

    def summary(self) -> str:
        """Return smallest, median, 95 % and largest length for the line about the file, and begin anew; "" without lengths."""
        ordered, self._lengths = sorted(self._lengths), []
        if not ordered:
            return ""
        ranks = {"min": 0.0, "median": 0.5, "p95": 0.95, "max": 1.0}
        values = {name: ordered[max(0, math.ceil(rank * len(ordered)) - 1)] for name, rank in ranks.items()}
        return f"; tokens of a prompt: {', '.join(f'{name} {value}' for name, value in values.items())}"
