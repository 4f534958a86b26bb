"""Check that data files have what veRL's `RLHFDataset` and the rewards need; any files, not only those built here.

One of the checks scores responses that state a row's ground truth: they should get full marks.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from omegaconf import OmegaConf

from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.options import Options
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import count_of, escape_controls, one_line, shorten, text_table
from verl_trgrpo.data.prompts import MOST_PROMPTS, RolloutPrompts, prompt_settings
from verl_trgrpo.data.rows import (
    COLUMNS,
    SINGLE_TURN,
    RawRow,
    UnreadableFileError,
    display_names,
    file_problems,
    ground_truth_of,
    is_chat,
    prompt_findings,
    reserved_findings,
    row_keys,
    tag_findings,
    truth_findings,
)
from verl_trgrpo.data.sources import message_of_test_file, says_test
from verl_trgrpo.data.verl_files import (
    DataFile,
    column_findings,
    concatenation_findings,
    open_as_verl,
)
from verl_trgrpo.judge.answer_form import asked_form
from verl_trgrpo.tasks.ground_truths import LITERAL_GOLDS, accepts, literal_findings, reward_findings
from verl_trgrpo.tasks.registry import (
    default_reward_problem,
    has_reward,
    import_external_modules,
    known_agents,
    task_key_of,
)
from verl_trgrpo.tasks.whole_files import WholeFile

# In the order of the report; docs/data.md says what each finds. All but the first two check single rows.
CHECKS = (
    "file", "columns", "prompt", "chat tags", "data source", "ground truth", "reward of gold", LITERAL_GOLDS, "duplicates",
    "overlap", "chat template", "prompt length",
)  # fmt: skip
_TRAIN, _TEST = "train", "test"

_MAX_EXAMPLES = 3

# A check of one row, given with its place: yields the name of the check with each finding.
RowCheck = Callable[[RawRow, str], Iterator[tuple[str, Finding]]]


@dataclass(frozen=True)
class CheckOptions(Options):
    """Files to check.

    Args:
        train: files to train on (.parquet, .json, .jsonl).
        test: files to test on.
        tokenizer: local directory of a model; prompt lengths are then in tokens of its chat template.
        template: NAME=VALUE options of the chat template, as in data.apply_chat_template_kwargs.
        max_prompt_length: limit in tokens; needs the tokenizer.
        prompt_key: column of the prompts, veRL's data.prompt_key.
        reward: data source whose reward scores the rows whose own data source has none.
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

    def add(self, check: str, findings: Iterable[Finding]) -> None:
        """Add findings of a check."""
        for finding in findings:
            places = self.findings.setdefault(check, {}).setdefault((finding.level, finding.message), [])
            places.append(finding.where)

    def skip(self, checks: Iterable[str], reason: str) -> None:
        """Add that checks were not made, at least not for all files and rows."""
        for check in checks:
            self.add(check, [Finding.not_checked("", reason)])

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
    checks: list[RowCheck] = [content_findings]
    if options.no_rewards:
        report.skip(("data source", "reward of gold", LITERAL_GOLDS), "--no-rewards; leave out this option")
    else:
        checks += [
            partial(reward_findings, default=options.reward),
            partial(_count_reward, report.rewards, options.reward),
        ]
    if prompts is None:
        report.skip(("chat template",), "no tokenizer; give the directory of a model with --tokenizer")
    if prompts is None or options.max_prompt_length is None:
        report.skip(("prompt length",), "no limit, or no tokenizer; give --tokenizer and --max-prompt-length")
    seen = SeenPrompts(options.reward, compare_truths=not options.no_rewards)
    read: dict[str, int] = {}
    # Train files first, because test rows are compared with them.
    for role, paths in ((_TRAIN, options.train), (_TEST, options.test)):
        files = _open_files({path: names[path] for path in paths}, options.prompt_key, report)
        if not files:
            report.skip(("overlap",), f"no {role} file; name one with --{role}")
        for path, file in files.items():
            lengths = PromptLengths(prompts, options.max_prompt_length)
            whole = WholeFile(options.reward)
            rows = progress(file.read((*COLUMNS, "agent_name"), options.prompt_key), file.rows, names[path])
            all_checks: list[RowCheck] = [*checks, partial(seen.findings, role), lengths.findings]
            found, literal = _check_rows(rows, path, names[path], role, all_checks, whole, report)
            report.add(LITERAL_GOLDS, literal_findings(names[path], literal, found))
            for check, finding in (*lengths.rest(), *whole.findings(names[path])):
                report.add(check, [finding])
            share = (
                f"; {count_of(literal, 'ground truth')} only compared literally ({literal / found:.1%})"
                if literal
                else ""
            )
            report.files.append(f"{path}: {count_of(found, 'row')}, {role}{lengths.summary()}{share}")
            read[role] = read.get(role, 0) + found
    if not any(read.values()):
        report.skip(CHECKS[2:], "no rows were read; correct the files")
    report.different_prompts = ", ".join(f"{seen.count(role):,} of {rows:,} {role} rows" for role, rows in read.items())
    return report


def _open_files(names: Mapping[Path, str], prompt_key: str, report: DataReport) -> dict[Path, DataFile]:
    """Check the columns of files, and return those that can be read."""
    files: dict[Path, DataFile] = {}
    for path, name in names.items():
        try:
            files[path] = file = open_as_verl(path)
        except UnreadableFileError as error:
            report.add("file", [Finding.error(name, str(error))])
            continue
        if not file.rows:
            report.add("file", [Finding.error(name, "it has no rows")])
        report.add("columns", column_findings(name, file.schema, prompt_key))
        if "extra_info" not in file.schema.names:
            message = "missing column extra_info; veRL then gives every row the index 0"
            report.add("columns", [Finding.warning(name, message)])
    report.add("columns", concatenation_findings({names[path]: file for path, file in files.items()}))
    return files


def _check_rows(
    rows: Iterable[RawRow],
    path: Path,
    name: str,
    role: str,
    checks: Sequence[RowCheck],
    whole: WholeFile,
    report: DataReport,
) -> tuple[int, int]:
    """Check the rows of one file; return how many could be read, and how many have a ground truth that is not understood."""
    read, literal, of_tests = 0, 0, False
    try:
        for row in rows:
            for check in checks:
                for check_name, finding in check(row, f"{name} row {read}"):
                    report.add(check_name, [finding])
                    literal += check_name == LITERAL_GOLDS
            whole.add(row, f"{name} row {read}")
            read += 1
            if is_chat(row.get("prompt")):
                report.forms[asked_form(row["prompt"]) or "none"] += 1
            of_tests = of_tests or says_test(row)
    except UnreadableFileError as error:
        report.add("file", [Finding.error(name, f"{error} (after {read} rows)")])
    if role == _TRAIN and (message := message_of_test_file(path, of_tests)):
        report.add("file", [Finding.warning(name, message)])
    return read, literal


def _count_reward(rewards: Counter[str], chosen: str | None, row: RawRow, _: str) -> Iterator[tuple[str, Finding]]:
    """Count a row under the reward that scores it; an option that scores no row is told with 0."""
    source, option = row.get("data_source"), f"--reward {chosen}"
    if chosen:
        rewards[option] += 0
    if has_reward(source, chosen):
        has_own = has_reward(source or None)  # a data source without a name has the chosen one
        rewards[option if chosen and not has_own else one_line(source, 60)] += 1
    yield from ()


def content_findings(row: RawRow, where: str) -> Iterator[tuple[str, Finding]]:
    """Check prompt, ground truth and agent loop of a row: veRL's loops or those of this package; a run may have others."""
    by_name = {
        "columns": reserved_findings,
        "prompt": prompt_findings,
        "chat tags": tag_findings,
        "ground truth": truth_findings,
    }
    for name, check in by_name.items():
        for finding in check(row, where):
            yield name, finding
    agent = row.get("agent_name", SINGLE_TURN)
    if agent is None:
        yield "columns", Finding.error(where, "agent_name is null; veRL fails for these rows, name one")
    elif agent not in known_agents():
        yield "columns", Finding.warning(where, f"agent_name is {agent}; not one of {', '.join(known_agents())}")


class SeenPrompts:
    """Find equal prompts among the rows checked so far; `default` is the data source whose reward scores those that have none.

    With `compare_truths`, ground truths are equal if the reward takes one for the other, not only if they are written alike.
    """

    def __init__(self, default: str | None = None, compare_truths: bool = True) -> None:
        self._default, self._compare_truths = default, compare_truths
        self._different = {_TRAIN: 0, _TEST: 0}
        # By role: hash of a key of equal prompts -> first row that has it, and its ground truth.
        self._first: dict[str, dict[int, tuple[str, str]]] = {_TRAIN: {}, _TEST: {}}

    def findings(self, role: str, row: RawRow, where: str) -> Iterator[tuple[str, Finding]]:
        """Check that a prompt is new among files of its role, and a test prompt not in a train file; remember it."""
        keys = row_keys(row, task_key_of(row))
        truth = json.dumps(ground_truth_of(row), sort_keys=True, default=str)
        met = self._met(role, keys)
        self._different[role] += bool(keys) and not any(key.startswith("text:") for key, _, _ in met)
        for key, place, other_truth in met[:1]:
            # What is equal but for its names rightly has another ground truth.
            if key.startswith("text:") and not self._are_equal(row, truth, other_truth):
                golds = f"{shorten(ground_truth_of(row), 60)}, there {shorten(json.loads(other_truth), 60)}"
                # Published test sets, such as PopQA, ask the same of different things; training would punish right answers.
                level = Level.ERROR if role == _TRAIN else Level.WARNING
                yield "duplicates", Finding(level, where, f"same prompt as {place}, another ground truth: {golds}")
            else:
                yield "duplicates", Finding.warning(where, _same(key, place))
        for key, place, _ in self._met(_TRAIN, keys)[:1] if role == _TEST else []:
            yield "overlap", Finding.error(where, _same(key, place))
        for key in keys:
            self._first[role].setdefault(hash(key), (where, truth))

    def count(self, role: str) -> int:
        """Return how many different prompts the rows of a role had."""
        return self._different[role]

    def _are_equal(self, row: RawRow, truth: str, other_truth: str) -> bool:
        """Return whether two ground truths, given as JSON, are equal: as strings, or for the reward of a row, either way."""
        if truth == other_truth or not self._compare_truths:
            return truth == other_truth
        one, other = ground_truth_of(row), json.loads(other_truth)
        return accepts(row, one, other, self._default) or accepts(row, other, one, self._default)

    def _met(self, role: str, keys: Sequence[str]) -> list[tuple[str, str, str]]:
        first = self._first[role]
        return [(key, *first[hash(key)]) for key in keys if hash(key) in first]


def _same(key: str, place: str) -> str:
    noun = key.partition(":")[0]
    return f"same prompt as {place}" if noun == "text" else f"same {noun} as {place}, names aside"


class PromptLengths:
    """Measure the prompts of one file in tokens of a tokenizer's chat template; nothing without `prompts`, which makes them.

    The findings of a row may come with those of a later one: prompts are measured many at a time.
    """

    def __init__(self, prompts: RolloutPrompts | None, limit: int | None) -> None:
        self._prompts, self._limit = prompts, limit
        self._waiting: list[tuple[RawRow, str]] = []
        self._lengths: list[int] = []

    def findings(self, row: RawRow, where: str) -> Iterator[tuple[str, Finding]]:
        """Check that the chat template takes the prompt, and that it is not too long."""
        if self._prompts is None or not is_chat(row.get("prompt")):
            return
        self._waiting.append((row, where))
        if len(self._waiting) == MOST_PROMPTS:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[str, Finding]]:
        """Check the prompts that wait."""
        if self._prompts is None or not self._waiting:
            return
        found = self._prompts.lengths(row for row, _ in self._waiting)
        for length, (_, where) in zip(found, self._waiting, strict=True):
            if isinstance(length, str):
                yield "chat template", Finding.error(where, length)
                continue
            self._lengths.append(length)
            if self._limit is not None and length > self._limit:
                message = f"longer than {self._limit} tokens; veRL drops such a prompt, or stops"
                yield "prompt length", Finding.warning(where, message)
        self._waiting.clear()

    def summary(self) -> str:
        """Return smallest, median, 95 % and largest length for the line about the file; empty without lengths."""
        if not self._lengths:
            return ""
        ordered = sorted(self._lengths)
        ranks = {"min": 0.0, "median": 0.5, "p95": 0.95, "max": 1.0}
        values = {name: ordered[max(0, math.ceil(rank * len(ordered)) - 1)] for name, rank in ranks.items()}
        return f"; tokens of a prompt: {', '.join(f'{name} {value}' for name, value in values.items())}"
