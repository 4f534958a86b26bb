"""Each pattern of the mathematics has an example behind it: a comment, which the pattern finds."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import verl_trgrpo.judge as room

WITHOUT = ("answer_form", "golds")
"""They read prose, whose wordings have tables of their own."""
CHARACTERS = {rf"\ue00{k}": chr(0xE000 + k) for k in range(6)}
"""What the comments write for the characters that stand for a row break, a group of thousands and the like."""


def patterns_of(name, source):
    """Yield the name of each compiled pattern of a module or table, the pattern, and the comment on its last line."""
    module, lines = importlib.import_module(f"{room.__name__}.{name}"), source.splitlines()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or "re.compile(" not in ast.unparse(node):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        value = getattr(module, ast.unparse(target))
        if isinstance(value, re.Pattern):
            yield f"{name}.{ast.unparse(target)}", value, lines[node.end_lineno - 1]
            continue
        rows = next(each.iter.elts for each in ast.walk(node) if isinstance(each, ast.comprehension))
        for (pattern, *_), row in zip(value, rows, strict=True):
            yield f"{name}.{ast.unparse(target)}:{row.lineno}", pattern, lines[row.end_lineno - 1]


FOUND = [
    each
    for path in sorted(Path(room.__file__).parent.glob("[!_]*.py"))
    if path.stem not in WITHOUT
    for each in patterns_of(path.stem, path.read_text(encoding="utf-8"))
]


def examples(line):
    comment = line.rpartition("  # ")[2] if "  # " in line else ""
    for written, meant in CHARACTERS.items():
        comment = comment.replace(written, meant)
    return [example for example in comment.split("; ") if example]


@pytest.mark.parametrize(("pattern", "line"), [each[1:] for each in FOUND], ids=[each[0] for each in FOUND])
def test_the_example_behind_a_pattern_matches(pattern, line):
    assert examples(line)
    assert [example for example in examples(line) if not pattern.search(example)] == []


def test_all_patterns_are_read():
    compiled = {
        id(pattern)
        for name in {each[0].partition(".")[0] for each in FOUND}
        for pattern in vars(importlib.import_module(f"{room.__name__}.{name}")).values()
        if isinstance(pattern, re.Pattern)
    }
    assert compiled <= {id(pattern) for _, pattern, _ in FOUND} and len(FOUND) > 80
