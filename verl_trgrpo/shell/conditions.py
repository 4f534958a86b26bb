"""Decide the conditions of a bash script: ``[ ... ]``, ``[[ ... ]]`` and ``test``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from verl_trgrpo.shell.numbers import SIGNS, is_int
from verl_trgrpo.shell.tree import matches, source_of
from verl_trgrpo.shell.words import Words

if TYPE_CHECKING:
    from tree_sitter import Node


class Conditions:
    """Decides conditions over words. ``because`` holds why the last one that is not known is not."""

    def __init__(self, words: Words) -> None:
        self.words, self.because = words, ""

    def of(self, node: Node) -> bool | None:
        children = [child for child in node.children if child.type != "comment"]
        if node.type == "parenthesized_expression":
            return self.of(node.named_children[0])
        if node.type in ("unary_expression", "negated_expression") and children[0].type == "!":
            status = self.of(children[1])
            return None if status is None else not status
        if node.type == "binary_expression" and children[1].type in ("&&", "||"):
            wanted = children[1].type == "&&"
            first = self.of(children[0])
            if first is not None and first is not wanted:
                return first
            second = self.of(children[2])
            return second if first is wanted or second is not wanted else None
        parts = [child for child in children if child.text]
        quoted = len(parts) == 3 and parts[2].type in ("string", "raw_string")
        words = [
            source_of(each) if each.type == "test_operator" or not each.is_named else self.words.text(each, True)
            for each in parts
        ]
        test = node.parent
        while test is not None and test.type != "test_command":
            test = test.parent
        return self.compared(words, not quoted and test is not None and source_of(test).startswith("[["))

    def compared(self, words: list[str], patterns: bool) -> bool | None:
        """Return what ``test`` returns for some words."""
        if words[:1] == ["!"] and len(words) > 1:
            status = self.compared(words[1:], patterns)
            return None if status is None else not status
        if len(words) == 2 and words[0] == "-v":
            return self.words.value(words[1]) is not None
        if reason := next(filter(None, map(self.words.reasons.of, words)), ""):
            self.because = f" ({reason})"
            return None
        match words:
            case [text]:
                return bool(text)
            case ["-n", text]:
                return bool(text)
            case ["-z", text]:
                return not text
            case ["-f" | "-e" | "-d" | "-r" | "-s" | "-x" as kind, text]:
                path = Path(self.words.state.directory, text)
                return path.is_dir() if kind == "-d" else path.exists()
            case [left, "=" | "==", right]:
                return matches(left, right) if patterns else left == right
            case [left, "!=", right]:
                return not (matches(left, right) if patterns else left == right)
            case [left, "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" as sign, right] if is_int(left) and is_int(right):
                return SIGNS[sign](int(left), int(right))
        return None
