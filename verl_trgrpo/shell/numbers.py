"""Calculate the numbers of a bash script."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from verl_trgrpo.shell.tree import source_of

if TYPE_CHECKING:
    from tree_sitter import Node

SIGNS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b, "-ne": lambda a, b: a != b, "-lt": lambda a, b: a < b, "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b, "-ge": lambda a, b: a >= b,
}  # fmt: skip
"""Comparisons of ``test`` by their sign."""
_COMPARED = {"==": "-eq", "!=": "-ne", "<": "-lt", "<=": "-le", ">": "-gt", ">=": "-ge"}
_ASSIGNS = re.compile(r"[-+*/%]?=")


class Numbers:
    """Calculations over variables.

    Args:
        text_of: returns the text that a node becomes.
        value_of: returns the text of a variable, "" for one that is not set.
        assign: sets a variable to a number, or to None where it is not known.
    """

    def __init__(
        self,
        text_of: Callable[[Node], str],
        value_of: Callable[[str], str],
        assign: Callable[[Node, str, int | None], None],
    ) -> None:
        self._text_of, self._value_of, self._assign = text_of, value_of, assign

    def of(self, node: Node) -> int | None:
        """Return the number of an expression; None where it is not known."""
        children, kind = node.children, node.type
        sign = children[1].type if len(children) > 1 else ""
        if kind == "parenthesized_expression":
            return self.of(node.named_children[0])
        if kind in ("variable_assignment", "binary_expression") and _ASSIGNS.fullmatch(sign):
            value = self.of(children[2])
            if sign != "=" and value is not None:
                before = self.of(children[0])
                value = None if before is None else operated(before, sign[:-1], value)
            self._assign(node, source_of(children[0]), value)
            return value
        if kind == "binary_expression":
            left, right = self.of(children[0]), self.of(children[2])
            return None if left is None or right is None else operated(left, sign, right)
        if kind in ("unary_expression", "postfix_expression") and "++" in (sign, children[0].type):
            return self._stepped(node, 1)
        if kind in ("unary_expression", "postfix_expression") and "--" in (sign, children[0].type):
            return self._stepped(node, -1)
        if kind == "unary_expression" and children[0].type in "-!":
            value = self.of(children[1])
            return None if value is None else -value if children[0].type == "-" else int(not value)
        if kind == "ternary_expression":
            condition = self.of(children[0])
            return None if condition is None else self.of(children[2 if condition else 4])
        return self._leaf(node)

    def _leaf(self, node: Node) -> int | None:
        text = source_of(node) if node.type in ("word", "variable_name") else self._text_of(node)
        if text.isidentifier():
            text = self._value_of(text)
        return int(text) if is_int(text) else None if text else 0

    def _stepped(self, node: Node, step: int) -> int | None:
        """Add `step` to a variable; return its value before or, where the sign comes first, after that."""
        name = node.named_children[0]
        value = self.of(name)
        after = None if value is None else value + step
        self._assign(node, source_of(name), after)
        return value if node.type == "postfix_expression" else after


def operated(left: int, sign: str, right: int) -> int | None:
    """Return the result of an operation as bash computes it, None for one that it refuses or that is not known here."""
    if sign in _COMPARED:
        return int(SIGNS[_COMPARED[sign]](left, right))
    if sign in ("&&", "||"):
        return int(bool(left and right) if sign == "&&" else bool(left or right))
    if sign in ("/", "%"):
        if not right:
            return None
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if sign == "/" else left - quotient * right
    if sign == "**":
        return pow(left, right, 1 << 64) if right >= 0 else None
    return {"+": left + right, "-": left - right, "*": left * right}.get(sign)


def is_int(text: str) -> bool:
    """Return whether a text is a whole number of a size that bash computes with."""
    return bool(re.fullmatch(r"-?[0-9]{1,18}", text))
