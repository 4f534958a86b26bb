"""Does a response that states the ground truth get full marks from the reward of its data source?"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from verl_trgrpo.common.problems import shorten
from verl_trgrpo.data.checks.files import first_line
from verl_trgrpo.data.checks.findings import ERROR, WARNING, Findings
from verl_trgrpo.data.checks.rows import ground_truth_of
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.registry import find_reward, find_right_response, has_reward

# The forms that rewards usually want an answer in.
FORMS: tuple[Callable[[str], str], ...] = (
    lambda gold: f"<think></think><answer>{gold}</answer>",
    lambda gold: rf"\boxed{{{gold}}}",
    lambda gold: f"<answer>{gold}</answer>",
)


def import_external_modules() -> None:
    """Import the modules that veRL would import everywhere, which may register rewards.

    Raises ValueError where one cannot be imported.
    """
    for name in filter(None, map(str.strip, os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(","))):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ValueError(
                f"VERL_USE_EXTERNAL_MODULES names {name}, which cannot be imported ({error}); install or remove it"
            ) from error


class GoldCheck:
    """Scores responses built from ground truths; remembers which form of answer a data source takes."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._unusable: dict[str, str] = {}
        self._form: dict[str, Callable[[str], str]] = {}

    def check(self, row: Mapping[str, Any], where: str) -> None:
        """Note whether the gold of `row` does not get `acc` 1.0; rows without a reward are not checked."""
        source = row.get("data_source")
        if not isinstance(source, str) or not has_reward(source):
            self._findings.skipped("reward of gold", f"no reward for {shorten(source)}")
            return
        if source not in self._unusable:
            self._unusable[source] = _import_problem(source)
        if self._unusable[source]:
            self._findings.skipped("reward of gold", self._unusable[source])
            return
        self._findings.ran("reward of gold")
        try:
            severity, problem = self._problem(source, row)
        except Exception as error:  # a reward is anybody's code; what it raises here it would raise in training
            severity, problem = ERROR, f"the reward of {source!r} raises {type(error).__name__}: {first_line(error)}"
        if problem:
            self._findings.add("reward of gold", severity, where, problem)

    def _problem(self, source: str, row: Mapping[str, Any]) -> tuple[str, str]:
        truth, extra_info = ground_truth_of(row), row.get("extra_info")
        severity, problem = ERROR, f"the ground truth {shorten(truth)} holds no text to answer with"
        for form, response in self._responses(source, truth):
            verdict = compute_score(source, response, truth, extra_info if isinstance(extra_info, Mapping) else {})
            if verdict["acc"] == 1.0 and not verdict["gold_unparseable"]:
                if form is not None:
                    self._form[source] = form
                return ERROR, ""
            if verdict["gold_unparseable"]:
                return ERROR, f"the reward of {source!r} cannot read the ground truth {shorten(truth)}"
            if verdict["timed_out"]:
                severity, problem = WARNING, f"the reward of {source!r} timed out on the ground truth {shorten(truth)}"
            else:
                severity, problem = ERROR, f"the ground truth {shorten(truth)} as an answer gets acc {verdict['acc']}"
        return severity, problem

    def _responses(self, source: str, truth: Any) -> Iterator[tuple[Callable[[str], str] | None, str]]:
        right_response = find_right_response(source)
        if right_response is not None:
            yield None, right_response(truth)
            return
        known = self._form.get(source)
        # The form that worked before comes first: most rows then need one call.
        forms = sorted(FORMS, key=lambda form: form is not known)
        for gold in gold_texts(truth):
            for form in forms:
                yield form, form(gold)


def gold_texts(truth: Any) -> list[str]:
    """Return the texts that a ground truth accepts: itself, its alternatives, or those of a usual key of a mapping."""
    if isinstance(truth, Mapping):
        for key in ("solution_text_format", "target"):
            if truth.get(key):
                return gold_texts(truth[key])
        return [text for value in truth.values() for text in gold_texts(value)]
    if isinstance(truth, list):
        return [text for value in truth for text in gold_texts(value)]
    return [] if truth is None else [str(truth)]


def _import_problem(source: str) -> str:
    try:
        find_reward(source)
    except Exception as error:  # whatever stops the import
        return f"the reward of {source!r} cannot be imported ({first_line(error)})"
    return ""
