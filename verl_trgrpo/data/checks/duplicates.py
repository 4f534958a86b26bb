"""Equal prompts: within the files of a role, with different ground truths, and in both train and test files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from verl_trgrpo.data.checks.findings import ERROR, WARNING, Findings
from verl_trgrpo.data.checks.rows import TEST, TRAIN, ground_truth_of
from verl_trgrpo.data.normalize import row_keys


class PromptIndex:
    """Remembers the prompts of all rows as hashes of 16 bytes."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._seen: dict[str, dict[bytes, tuple[str, bytes]]] = {}

    def add(self, row: Mapping[str, Any], group: str, where: str) -> None:
        """Compare a row with those before it; rows of one `group` belong together in a run.

        Train rows have to come before test rows.
        """
        self._findings.ran("duplicates")
        self._findings.ran("conflicts")
        truth = _digest(json.dumps(ground_truth_of(row), sort_keys=True, default=str))
        seen = self._seen.setdefault(group, {})
        duplicate_of = ""
        keys = row_keys(row)
        for key in keys:
            first, first_truth = seen.setdefault(_digest(key), (where, truth))
            if first == where:
                continue
            duplicate_of = duplicate_of or _same(key, first)
            # An equal puzzle with other names rightly has another ground truth.
            if key.startswith("text:") and first_truth != truth:
                self._findings.add("conflicts", ERROR, where, f"same prompt as {first}, another ground truth")
        if duplicate_of:
            self._findings.add("duplicates", WARNING, where, duplicate_of)
        if group == TEST and TRAIN in self._seen:
            self._findings.ran("overlap")
            train = self._seen[TRAIN]
            in_train = next((_same(key, train[_digest(key)][0]) for key in keys if _digest(key) in train), None)
            if in_train:
                self._findings.add("overlap", ERROR, where, in_train)


def _same(key: str, place: str) -> str:
    return f"same prompt as {place}" if key.startswith("text:") else f"same puzzle as {place}, names aside"


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
