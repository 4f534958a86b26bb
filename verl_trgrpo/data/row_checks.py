"""The checks of `verl-trgrpo data check` that look at one row after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import first_line, shorten
from verl_trgrpo.data.parquet import extra_info_of, ground_truth_of
from verl_trgrpo.data.schema import is_chat, prompt_findings, tag_findings, truth_findings
from verl_trgrpo.data.tokens import prompt_length

TRAIN, TEST = "train", "test"

# The forms that rewards usually want an answer in.
FORMS = ("<think></think><answer>{}</answer>", r"\boxed{{{}}}", "<answer>{}</answer>")


class Scan:
    """What the checks know beside a row: of the run, of its file, and of the rows before.

    Args:
        rewards: `verl_trgrpo.tasks`, or a module with the same functions.
        gold: whether responses that state the ground truth are scored.
        tokenizer: with a chat template, or None.
        limit: of a prompt in tokens, if there is one.
    """

    def __init__(self, rewards: ModuleType, gold: bool, tokenizer: Any, limit: int | None) -> None:
        self.rewards, self.gold, self.tokenizer, self.limit = rewards, gold, tokenizer, limit
        # Role of a file -> hash of a prompt's key -> where it was met first, and its ground truth.
        self.prompts: dict[str, dict[int, tuple[str, str]]] = {TRAIN: {}, TEST: {}}
        self.rows = 0

    def start_file(self, role: str) -> None:
        """Begin a file; files of one role belong together in a run."""
        self.role = role
        self.lengths: list[int] = []
        self.length: int | None = None

    def start_row(self, row: Mapping[str, Any], keys: Sequence[str]) -> None:
        """Begin a row; `keys` are those of equal prompts."""
        self.keys = [(key, hash(key)) for key in keys]
        self.truth = json.dumps(ground_truth_of(row), sort_keys=True, default=str)

    def end_row(self, where: str) -> None:
        """Remember a row for those that follow."""
        self.rows += 1
        for _, digest in self.keys:
            self.prompts[self.role].setdefault(digest, (where, self.truth))

    def met(self, role: str) -> list[tuple[str, str, str]]:
        """Return key, place and ground truth of earlier rows of a role that equal this one."""
        seen = self.prompts[role]
        return [(key, *seen[digest]) for key, digest in self.keys if digest in seen]


def source_findings(row: Mapping[str, Any], where: str, scan: Scan) -> Iterator[Finding]:
    """Yield a data source without a reward."""
    source = row.get("data_source")
    if not scan.gold:
        yield Finding.not_checked("", "--no-rewards")
    elif not scan.rewards.has_reward(source):
        known = ", ".join(scan.rewards.known_data_sources())
        yield Finding.error(
            where,
            f"no reward for {shorten(source)}; known are {known}. For a run with other rewards, give --no-rewards",
        )


def gold_findings(row: Mapping[str, Any], where: str, scan: Scan) -> Iterator[Finding]:
    """Yield why the ground truth of a row, as an answer, does not get `acc` 1.0."""
    source = row.get("data_source")
    if not scan.gold:
        yield Finding.not_checked("", "--no-rewards")
    elif not isinstance(source, str) or not scan.rewards.has_reward(source):
        yield Finding.not_checked("", f"no reward for {shorten(source)}")
    elif not any(finding.level is Level.ERROR for finding in truth_findings(row, where)):
        try:
            found = _gold_finding(row, source, where, scan.rewards)
        except ImportError as problem:
            found = Finding.not_checked("", f"the reward of {source!r} cannot be imported ({first_line(problem)})")
        except Exception as problem:  # a reward is anybody's code; what it raises here it would raise in training
            found = Finding.error(
                where, f"the reward of {source!r} raises {type(problem).__name__}: {first_line(problem)}"
            )
        yield from [found] if found else []


def duplicate_findings(row: Mapping[str, Any], where: str, scan: Scan) -> Iterator[Finding]:
    """Yield an equal prompt in the files of the same role; an equal puzzle with other names has rightly another truth."""
    for key, place, truth in scan.met(scan.role)[:1]:
        if key.startswith("text:") and truth != scan.truth:
            yield Finding.error(where, f"same prompt as {place}, another ground truth")
        else:
            yield Finding.warning(where, _same(key, place))


def overlap_findings(row: Mapping[str, Any], where: str, scan: Scan) -> Iterator[Finding]:
    """Yield a test prompt that is in a train file; these have been read before."""
    for key, place, _ in scan.met(TRAIN)[:1] if scan.role == TEST else []:
        yield Finding.error(where, _same(key, place))


def template_findings(row: Mapping[str, Any], where: str, scan: Scan) -> Iterator[Finding]:
    """Yield why the chat template refuses the prompt; else note the length, for a row that is a chat."""
    scan.length = None
    if scan.tokenizer is None:
        yield Finding.not_checked("", "no --tokenizer")
        return
    if not is_chat(row.get("prompt")):
        return
    try:
        scan.length = prompt_length(scan.tokenizer, row["prompt"])
        scan.lengths.append(scan.length)
    except ValueError as problem:
        yield Finding.error(where, str(problem))


def length_findings(row: Mapping[str, Any], where: str, scan: Scan) -> Iterator[Finding]:
    """Yield a prompt that is too long; after `template_findings`."""
    if scan.tokenizer is None or scan.limit is None:
        yield Finding.not_checked("", "it takes --tokenizer and --max-prompt-length")
    elif scan.length is not None and scan.length > scan.limit:
        yield Finding.warning(where, f"longer than {scan.limit} tokens; veRL drops such a prompt, or stops")


ROW_CHECKS: dict[str, Callable[[Mapping[str, Any], str, Scan], Iterator[Finding]]] = {
    "prompt": lambda row, where, scan: prompt_findings(row, where),
    "chat tags": lambda row, where, scan: tag_findings(row, where),
    "data source": source_findings,
    "ground truth": lambda row, where, scan: truth_findings(row, where),
    "reward of gold": gold_findings,
    "duplicates": duplicate_findings,
    "overlap": overlap_findings,
    "chat template": template_findings,
    "prompt length": length_findings,
}


def _same(key: str, place: str) -> str:
    return f"same prompt as {place}" if key.startswith("text:") else f"same puzzle as {place}, names aside"


def _gold_finding(row: Mapping[str, Any], source: str, where: str, rewards: ModuleType) -> Finding | None:
    truth = ground_truth_of(row)
    found = Finding.error(where, f"the ground truth {shorten(truth)} holds no text to answer with")
    right_response = rewards.find_right_response(source)
    golds = _gold_texts(truth)
    for response in [right_response(truth)] if right_response else (form.format(g) for g in golds for form in FORMS):
        if response is None:
            return Finding.not_checked("", f"{source} states no right answer")
        verdict = rewards.compute_score(source, response, truth, extra_info_of(row))
        if verdict["gold_unparseable"]:
            return Finding.error(where, f"the reward of {source!r} cannot read the ground truth {shorten(truth)}")
        if verdict["acc"] == 1.0:
            return None
        if verdict["timed_out"]:
            found = Finding.warning(where, f"the reward of {source!r} timed out on the ground truth {shorten(truth)}")
        else:
            found = Finding.error(where, f"the ground truth {shorten(truth)} as an answer gets acc {verdict['acc']}")
    return found


def _gold_texts(truth: Any) -> list[str]:
    """Return the texts that a ground truth accepts: itself, its alternatives, or those of a usual key of a mapping."""
    if isinstance(truth, Mapping):
        for key in ("solution_text_format", "target"):
            if truth.get(key):
                return _gold_texts(truth[key])
        truth = list(truth.values())
    if isinstance(truth, list):
        return [text for value in truth for text in _gold_texts(value)]
    return [] if truth is None else [str(truth)]
