"""Instructions that many prompts share, so that they do not count as a prompt's own words.

A beginning or an end counts as an instruction if at least `SHARE` of the different prompts of a data source in a file,
and at least `MIN_PROMPTS`, have it. The same goes for runs of words anywhere (`frequent_runs`). What is learned from any
file of a comparison holds for all of them, so that equal prompts stay equal.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

SHARE = 0.1
MIN_PROMPTS = 5

Words = Sequence[str]
Run = tuple[str, ...]


class Boilerplate:
    """The beginnings and ends of prompts that are instructions."""

    def __init__(self) -> None:
        self._starts: dict[str, Any] = {}
        self._ends: dict[str, Any] = {}

    def learn(self, prompts: Iterable[Words]) -> None:
        """Take in the common beginnings and ends of the prompts of one data source in one file."""
        different = list(dict.fromkeys(map(tuple, prompts)))
        _grow(self._starts, different)
        _grow(self._ends, [words[::-1] for words in different])

    def strip(self, words: Words) -> Words:
        """Return `words` without an instruction at either end; a prompt that is nothing else is returned whole."""
        start = _match(self._starts, words)
        rest = words[start:]
        end = len(rest) - _match(self._ends, rest[::-1])
        return rest[:end] or words


def frequent_runs(prompts: Iterable[Words], size: int, among: Collection[Run]) -> set[Run]:
    """Return those of the runs `among`, of `size` words, that are common among the different prompts of one data source."""
    different = list(dict.fromkeys(map(tuple, prompts)))
    counts = Counter(run for words in different for run in set(runs(words, size)) if run in among)
    needed = _needed(len(different))
    return {run for run, count in counts.items() if count >= needed}


def runs(words: Words, size: int) -> list[Run]:
    """Return the runs of `size` successive words, none if there are fewer words."""
    return list(zip(*(words[i:] for i in range(size)), strict=False))


def _needed(prompts: int) -> int:
    return max(MIN_PROMPTS, math.ceil(SHARE * prompts))


def _grow(trie: dict[str, Any], prompts: list[tuple[str, ...]]) -> None:
    """Add to `trie` every beginning that enough prompts have."""
    needed = _needed(len(prompts))
    level = [(trie, prompts)]
    depth = 0
    while level:
        deeper = []
        for node, group in level:
            by_word = defaultdict(list)
            for words in group:
                if len(words) > depth:
                    by_word[words[depth]].append(words)
            for word, with_word in by_word.items():
                if len(with_word) >= needed:
                    deeper.append((node.setdefault(word, {}), with_word))
        level = deeper
        depth += 1


def _match(trie: dict[str, Any], words: Words) -> int:
    length = 0
    for word in words:
        if word not in trie:
            break
        trie = trie[word]
        length += 1
    return length
