"""Work of a function, counted: calls, turns of loops, and characters that are read. It is the same on every machine.

Functions of the package run with another code, in which each call, slice and turn of a loop tells what it reads; a
search with a pattern is counted by `tests/pattern_steps.py`.
"""

import ast
import builtins
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType

from tests.pattern_steps import METHODS, WHOLE, steps

_AT_ONCE = {
    "len",
    "isinstance",
    "getattr",
    "append",
    "startswith",
    "endswith",
    "get",
    "chr",
    "ord",
    "id",
    "hash",
    "range",
}
_SEARCHES = {"find", "rfind", "index", "rindex", "count"}
_SIZED = (str, bytes, tuple, set, list)


class _Counting(ast.NodeTransformer):
    """Wrap what reads a text or repeats."""

    def _wrapped(self, kind, node):
        return ast.copy_location(ast.Call(ast.Name(f"_work_{kind}", ast.Load()), [node], []), node)

    def visit_Call(self, node):
        self.generic_visit(node)
        if getattr(node.func, "id", "") in ("super", "locals", "vars", "cast"):
            return node
        node.args.insert(0, node.func)
        node.func = ast.copy_location(ast.Name("_work_call", ast.Load()), node)
        return node

    def visit_Subscript(self, node):
        self.generic_visit(node)
        sliced = isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Slice)
        return self._wrapped("read", node) if sliced else node

    def visit_BinOp(self, node):
        self.generic_visit(node)
        return self._wrapped("read", node)

    def visit_Compare(self, node):
        self.generic_visit(node)
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            node.comparators[0] = self._wrapped("read", node.comparators[0])
        return node

    def visit_While(self, node):
        self.generic_visit(node)
        node.test = self._wrapped("read", node.test)
        return node

    def visit_For(self, node):
        self.generic_visit(node)
        node.iter = self._wrapped("each", node.iter)
        return node

    visit_comprehension = visit_For

    def visit_FunctionDef(self, node):  # the code of its defaults and annotations is not run again
        node.body = [self.visit(each) for each in node.body]
        return node


class Work:
    """What has been counted."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, function, *arguments):
        """Return the work of one call."""
        before = self.count
        function(*arguments)
        return self.count - before

    def read(self, value):
        self.count += 1 + (len(value) if isinstance(value, (str, bytes)) else 0)
        return value

    def each(self, values):
        for value in values:
            self.count += 1
            yield value

    def call(self, function, /, *arguments, **options):
        name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
        result = function(*arguments, **options)
        self.count += 1
        if getattr(function, "__module__", "") == "re" and name in METHODS:
            flags = options.get("flags", 0) if name in WHOLE else (*arguments[2:], 0)[0]
            self._search(re.compile(arguments[0], flags), name, arguments[1:])
        elif isinstance(owner, re.Pattern):
            self._search(owner, name, arguments)
        elif isinstance(owner, str) and name in _SEARCHES:
            begin, end = (*arguments[1:], *(0, len(owner))[len(arguments) - 1 :])[:2]
            found = name != "count" and result >= 0
            self.count += max(0, (end - result if name[0] == "r" else result - begin) if found else end - begin)
        elif not isinstance(function, FunctionType) and name not in _AT_ONCE:
            self.count += sum(len(text) for text in (*arguments, owner, result) if isinstance(text, _SIZED))
        return result

    def _search(self, pattern, method, arguments):
        k = 1 if method in ("sub", "subn") else 0
        if len(arguments) > k and isinstance(arguments[k], str):
            pos = arguments[1] if not k and len(arguments) > 1 and method not in WHOLE else 0
            self.count += steps(pattern, arguments[k], "finditer" if method in WHOLE else method, pos)


def _functions(holder: object) -> Iterator[FunctionType]:
    """Yield the functions of a module, or of a class, and of its classes; below decorators, too."""
    for value in list(vars(holder).values()):
        if isinstance(value, type) and value.__module__ == getattr(holder, "__name__", ""):
            yield from _functions(value)
        while value is not None and not isinstance(value, (type, FunctionType)):
            value = next(
                (getattr(value, name, None) for name in ("fget", "__func__", "__wrapped__") if hasattr(value, name)),
                None,
            )
        while isinstance(value, FunctionType):
            yield value
            value = getattr(value, "__wrapped__", None)


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield (each.co_name, each.co_firstlineno), each
            yield from _codes(each)


@contextmanager
def counted(package: str) -> Iterator[Work]:
    """Count the work of the functions of all imported modules below a package."""
    work, before, new = Work(), {}, {}
    # First, as a changed function may be called while others are changed. They stay: a function that was made meanwhile may be
    # kept, and calls them.
    vars(builtins).update({"_work_call": work.call, "_work_read": work.read, "_work_each": work.each})
    for module in [module for name, module in sys.modules.items() if f"{name}.".startswith(f"{package}.")]:
        for function in _functions(module):
            file, code = function.__code__.co_filename, function.__code__
            if (
                function in before
                or not file.endswith(".py")
                or not f"{function.__module__}.".startswith(f"{package}.")
            ):
                continue
            if file not in new:
                tree = ast.fix_missing_locations(_Counting().visit(ast.parse(Path(file).read_text(encoding="utf-8"))))
                new[file] = dict(_codes(compile(tree, file, "exec", dont_inherit=True)))
            made = new[file].get((code.co_name, code.co_firstlineno))
            if made is not None and made.co_freevars == code.co_freevars:
                before[function], function.__code__ = code, made
    try:
        yield work
    finally:
        for function, code in before.items():
            function.__code__ = code
