"""Parse a bash script with tree-sitter, and say what of it is not bash."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_NAME = re.compile(rb"[A-Za-z_]\w*")
_MOST_PASSES = 5


def parse_bash(script: str) -> Node:
    """Return the tree of a script; tree-sitter-bash loses the second variable of ``$A/$B/c`` unless it has braces."""
    from tree_sitter import Language, Parser
    from tree_sitter_bash import language

    parser = Parser(Language(language()))
    content = f"{script.rstrip().removesuffix(chr(92))}\n".encode()
    for _ in range(_MOST_PASSES):
        root = parser.parse(content).root_node
        changed = content.replace(b"$(((", b"$(( (") if root.has_error else content
        if changed == content:
            parts, end = list[bytes](), 0
            for at in _bare_dollars(root):
                if name := _NAME.match(content, at):
                    parts += [content[end:at], b"{%b}" % name[0]]
                    end = name.end()
            changed = b"".join([*parts, content[end:]])
        if changed == content:
            break
        content = changed
    return root


def _bare_dollars(root: Node) -> list[int]:
    """Return where a dollar sign ends that the parser takes for itself."""
    found, waiting = set(), [root]
    while waiting:
        node = waiting.pop()
        if node.type == "$" and node.parent is not None and node.parent.type != "simple_expansion":
            found.add(node.end_byte)
        waiting += node.children
    return sorted(found)


def errors_of(node: Node) -> Iterator[Node]:
    """Yield the nodes that are not bash."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each.type == "ERROR" or each.is_missing:
            if each.text != b"[" or each.parent is None or each.parent.type != "expansion":  # a default that is a list
                yield each
        elif each.has_error and not source_of(each).startswith("$(("):
            waiting += reversed(each.children)


def source_of(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def short(node: Node) -> str:
    text = " ".join(source_of(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def matches(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text, pattern.replace("\\", ""))
