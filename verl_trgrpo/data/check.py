"""Are data files fit for a run? Checks what veRL's `RLHFDataset` and the rewards need, for anybody's parquet files."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_trgrpo.common.problems import Finding, error, not_checked, raise_problems, shorten, warning
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data.check_report import FileFacts, Gathered, Report
from verl_trgrpo.data.columns import column_findings, concatenation_findings
from verl_trgrpo.data.golds import Rewards, data_source_findings, gold_findings
from verl_trgrpo.data.parquet import (
    UnreadableError,
    display_names,
    extra_info_of,
    ground_truth_of,
    read_rows,
    read_schema,
)
from verl_trgrpo.data.prompts import RowKey, row_keys
from verl_trgrpo.data.schema import CHAT_TAGS, prompt_findings, truth_findings
from verl_trgrpo.data.tokens import load_tokenizer, render_prompt, summarize, template_tags

TRAIN, TEST = "train", "test"

# How files call the part they belong to; "validation" files are test files to a run.
SPLITS = {"train": TRAIN, "test": TEST, "val": TEST, "validation": TEST, "dev": TEST, "eval": TEST}


@dataclass(frozen=True)
class CheckOptions:
    """What to check.

    Raises ValueError for files that do not exist, none at all, one given twice, or a limit below 1.

    Args:
        files: parquet files; extra_info.split of all rows says whether one is a train or a test file.
        train: train files, whatever their rows say.
        test: test files, whatever their rows say.
        tokenizer: local directory of a model; prompt lengths are then in tokens of its chat template.
        max_prompt_length: limit in tokens; needs the tokenizer.
        rewards: whether a response that states the ground truth of a row is scored, which finds rewards that misread it.
        strict: warnings give exit code 1, too.
        json: print the report as JSON.
    """

    files: tuple[Path, ...] = ()
    train: tuple[Path, ...] = ()
    test: tuple[Path, ...] = ()
    tokenizer: Path | None = None
    max_prompt_length: int | None = None
    rewards: bool = True
    strict: bool = False
    json: bool = False

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


def check_files(options: CheckOptions, rewards: Rewards, row_key: RowKey, progress: Progress = no_progress) -> Report:
    """Check the files of a run; every file is read once, row by row.

    Args:
        options: which files, and how.
        rewards: of the data sources, such as `verl_trgrpo.tasks`.
        row_key: what a task knows of equal rows, see `RowKey`.
        progress: shows the work.

    Raises:
        ValueError: the tokenizer cannot be loaded.
    """
    return _Check(options, rewards, row_key, progress).run()


class _Check:
    def __init__(self, options: CheckOptions, rewards: Rewards, row_key: RowKey, progress: Progress) -> None:
        self.options, self.rewards, self.row_key, self.progress = options, rewards, row_key, progress
        self.found = Gathered()
        self.tokenizer = load_tokenizer(options.tokenizer) if options.tokenizer else None
        self.tags = tuple(dict.fromkeys((*CHAT_TAGS, *(template_tags(self.tokenizer) if self.tokenizer else ()))))
        self.unit = "tokens" if self.tokenizer else "characters"
        self.limit = options.max_prompt_length if self.tokenizer else None
        self.names = display_names([*options.train, *options.test, *options.files])
        # Group of files -> key of a prompt -> where it was met first, and its ground truth.
        self.prompts: dict[str, dict[bytes, tuple[str, bytes]]] = {}

    def run(self) -> Report:
        opened = self._open()
        roles = {path: self._role(path) for path in opened}
        self._concatenation(opened, roles)
        facts, lengths = {}, array("Q")
        # Train files first: test rows are compared with them as they go by.
        for path in sorted(opened, key=lambda path: (TRAIN, TEST, None).index(roles[path])):
            facts[path] = self._file(path, opened[path][1], roles[path], lengths)
        self._explain(roles)
        in_order = tuple(facts[path] for path in self.names if path in facts)
        return Report(in_order, self.found.results(), summarize(lengths, self.unit, self.limit))

    def _open(self) -> dict[Path, tuple[pa.Schema, int]]:
        opened = {}
        self.found.ran("file", "columns")
        for path, name in self.names.items():
            try:
                schema, count = read_schema(path)
            except UnreadableError as problem:
                self.found.add("file", error(name, str(problem)))
                continue
            if not count:
                self.found.add("file", error(name, "it has no rows"))
            self.found.add_all(column_findings(name, schema))
            if len(set(schema.names)) == len(schema.names):
                opened[path] = (schema, count)
        return opened

    def _role(self, path: Path) -> str | None:
        """Return the part of a file in the run: as given, else the one that all its rows name."""
        if path in self.options.train or path in self.options.test:
            return TRAIN if path in self.options.train else TEST
        try:
            roles = {_role_of(row) for row in read_rows(path, ["extra_info.split"])}
        except UnreadableError:
            return None  # `_file` meets the same damage and reports it
        role = roles.pop() if len(roles) == 1 else None
        if role is None:
            self.found.add("split", not_checked(self.names[path], "no single split in its rows; use --train or --test"))
        return role

    def _concatenation(self, opened: dict[Path, tuple[pa.Schema, int]], roles: dict[Path, str | None]) -> None:
        for role in (TRAIN, TEST):
            # `datasets` leaves out files without rows.
            group = {self.names[p]: schema for p, (schema, count) in opened.items() if roles[p] == role and count}
            if len(group) > 1:
                self.found.ran("concatenation")
                self.found.add_all(concatenation_findings(group))
            elif group:
                self.found.add("concatenation", not_checked(role, "one file"))
        for path in opened:
            if roles[path] is None:
                self.found.add("concatenation", not_checked(self.names[path], "train or test is not known"))

    def _file(self, path: Path, count: int, role: str | None, all_lengths: array) -> FileFacts:
        name, read = self.names[path], 0
        lengths, indices = array("Q"), set[Any]()
        try:
            for row in self.progress(read_rows(path), count, name):
                where = f"{name} row {read}"
                self.found.ran("prompt", "message order", "chat tags", "index", "data source", "ground truth")
                self.found.add_all(_extra_info_findings(row, where, role, indices))
                self.found.add_all(data_source_findings(row, where, self.rewards))
                self._truth(row, where)
                self._equal_prompts(row, role or f"file {path}", where)
                problems = list(prompt_findings(row, where, self.tags))
                self.found.add_all(problems)
                if isinstance(row.get("prompt"), list) and not any(check == "prompt" for check, _ in problems):
                    self._measure(row["prompt"], where, lengths)
                read += 1
        except UnreadableError as problem:
            self.found.add("file", error(name, f"{problem} (after {read} rows)"))
        if role is not None and read:
            self.found.ran("split")
        all_lengths.extend(lengths)
        return FileFacts(str(path), name, read, role, summarize(lengths, self.unit, self.limit))

    def _truth(self, row: Mapping[str, Any], where: str) -> None:
        problems = list(truth_findings(row, where))
        self.found.add_all(problems)
        if self.options.rewards and not any(problem.level.value == "error" for _, problem in problems):
            found = list(gold_findings(row, where, self.rewards))
            if not found:
                self.found.ran("reward of gold")
            self.found.add_all(found)

    def _equal_prompts(self, row: Mapping[str, Any], group: str, where: str) -> None:
        """Compare a row with those before it; rows of one `group` belong together in a run."""
        self.found.ran("duplicates", "conflicts")
        truth = _digest(json.dumps(ground_truth_of(row), sort_keys=True, default=str))
        seen, train = self.prompts.setdefault(group, {}), self.prompts.get(TRAIN, {})
        keys = [(key, _digest(key)) for key in row_keys(row, self.row_key)]
        again = [(key, *seen[digest]) for key, digest in keys if digest in seen]
        if again:
            self.found.add("duplicates", warning(where, _same(*again[0][:2])))
        for key, first, first_truth in again:
            # An equal puzzle with other names rightly has another ground truth.
            if key.startswith("text:") and first_truth != truth:
                self.found.add("conflicts", error(where, f"same prompt as {first}, another ground truth"))
        for _, digest in keys:
            seen.setdefault(digest, (where, truth))
        if group == TEST and train:
            self.found.ran("overlap")
            in_train = [_same(key, train[digest][0]) for key, digest in keys if digest in train]
            self.found.add_all(("overlap", error(where, text)) for text in in_train[:1])

    def _measure(self, prompt: list[Mapping[str, Any]], where: str, lengths: array) -> None:
        if self.tokenizer is None:
            lengths.append(sum(len(message["content"]) for message in prompt))
            return
        self.found.ran("chat template", *(["prompt length"] if self.limit else []))
        try:
            _, tokens = render_prompt(self.tokenizer, prompt)
        except ValueError as problem:
            self.found.add("chat template", error(where, str(problem)))
            return
        lengths.append(tokens)
        if self.limit is not None and tokens > self.limit:
            text = f"longer than {self.limit} tokens; veRL drops such a prompt, or stops"
            self.found.add("prompt length", warning(where, text))

    def _explain(self, roles: dict[Path, str | None]) -> None:
        """Say why checks were not made."""
        absent = [role for role in (TRAIN, TEST) if role not in roles.values()]
        if absent:
            text = f"no {' and no '.join(absent)} file; name them with --train and --test"
            self.found.add("overlap", not_checked("", text))
        if not self.options.rewards:
            self.found.add("reward of gold", not_checked("", "--no-rewards"))
        if self.tokenizer is None:
            self.found.add("chat template", not_checked("", "no --tokenizer"))
        if self.limit is None:
            missing = [
                flag
                for flag, given in (
                    ("--tokenizer", self.tokenizer),
                    ("--max-prompt-length", self.options.max_prompt_length),
                )
                if given is None
            ]
            self.found.add("prompt length", not_checked("", f"no {' and no '.join(missing)}"))


def _extra_info_findings(
    row: Mapping[str, Any], where: str, role: str | None, seen: set[Any]
) -> Iterator[tuple[str, Finding]]:
    """Yield a missing or repeated index, and a split that is not `role`; `seen` are the file's indices so far."""
    extra_info = extra_info_of(row)
    index, split = extra_info.get("index"), extra_info.get("split")
    if index is None:
        yield "index", warning(where, "it has no extra_info.index; veRL calls it row 0 in its traces")
    elif not isinstance(index, (int, str)):
        yield "index", warning(where, f"extra_info.index is {shorten(index)}; it should be a whole number")
    elif index in seen:
        yield "index", warning(where, f"extra_info.index {shorten(index)} is there before; number the rows")
    else:
        seen.add(index)
    if role is not None and _role_of(row) != role:
        yield "split", warning(where, f"extra_info.split is {shorten(split)} in a {role} file")


def _role_of(row: Mapping[str, Any]) -> str | None:
    split = extra_info_of(row).get("split")
    return SPLITS.get(split) if isinstance(split, str) else None


def _same(key: str, place: str) -> str:
    return f"same prompt as {place}" if key.startswith("text:") else f"same puzzle as {place}, names aside"


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
