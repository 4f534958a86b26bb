"""The messages of the package, read from its source: ``python -m tests.messages`` prints each once."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "verl_trgrpo"
# What builds a message: errors, findings, and rows of rules.
MAKERS = re.compile(r"(Error|finding|Finding|error|warning|not_checked|append|Rule|Switch|_Warning|raise_invalid)$")
# An imperative with a pronoun as its object: of two settings that were named, the reader has to find out which.
_VERB = r"(?!how\b|what\b|while\b|as\b|if\b|of\b|in\b|to\b|by\b|on\b|nor\b)[a-z]+(?<!s)(?: for| at| into| off)?"
_CLOSE = r"(?=[,;.)]|$| (?:to|or|and|in|with|as|on|out)\b)"
_PRONOUN = rf"(?:it|them|(?:that|those|these|this){_CLOSE}|(?:one|both|all) of (?:them|these|those))"
PRONOUN = re.compile(
    rf"(?:^|; |: |\bor |\band |, then |; [^;.]*, )(?:{_VERB},? (?:or|and) )?{_VERB} {_PRONOUN}\b", re.IGNORECASE
)


def text_of(node: ast.AST) -> str | None:
    """Return a text, its values as ``{}``; None for what is not a text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "{}" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right) if text_of(left) or text_of(right):
            return (text_of(left) or "{}") + (text_of(right) or "{}")
    return None


def texts(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield the texts of a module but its docstrings, whole: the parts of a text are not yielded again."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if (text := text_of(node)) is not None:
            yield node, text
        for child in ast.walk(node) if text is not None else ():
            if isinstance(child, ast.FormattedValue):
                yield from texts(child)
        if text is None:
            yield from texts(node)


# A noun in the plural, and names of what is counted: of one, `count_of` has the noun in the singular.
_PLURAL = re.compile(r" (?!has\b|is\b|was\b|does\b|gives\b|holds\b)[a-z]+s\b")
_COUNT = re.compile(r"len\(|\b(?:count|number|total|size|steps)\b|sum\(|n_|_rows\b")


def counts(tree: ast.AST) -> Iterator[str]:
    """Yield what is counted, with its noun, of each text that has the plural whatever the number is."""
    for node in ast.walk(tree):
        for value, after in pairwise(node.values if isinstance(node, ast.JoinedStr) else ()):
            if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                counted, noun = ast.unparse(value.value), _PLURAL.match(str(after.value))
                if noun and _COUNT.search(counted):
                    yield f"{counted}{noun[0]}"


def messages(tree: ast.AST) -> Iterator[str]:
    """Yield the texts that errors, findings and rules are made of; a word alone is none."""
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
        if MAKERS.search(name):
            row = name in ("Rule", "Switch", "_Warning")  # whose first arguments are keys and conditions
            given = ast.Module(node.args[2:3] if row else [*node.args, *node.keywords], [])
            yield from (text for _, text in texts(given) if " " in text)


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the path and the source of each module of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for place, tree in modules():
        for message in dict.fromkeys(messages(tree)):
            print(f"{place}: {' '.join(message.split())}")
