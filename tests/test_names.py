"""One meaning for a public word: what a module defines at its top level without an underscore has a name of its own."""

import ast
from collections import defaultdict
from pathlib import Path

from verl_trgrpo.cli.main import COMMANDS

PACKAGE = Path(__file__).parents[1] / "verl_trgrpo"
# Names that are looked for in every module of a kind, and by what.
HOOKS = {
    "logger": "logging",
    "main": "whoever runs a program",
    "TASK": "tasks/registry.py, in a task's folder",
    "warm_up": "common/sandbox.py, in the module of a function that it runs",
}


def defined(source: str) -> set[str]:
    """The public names that a module defines at its top level."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def repeated(sources: dict[str, str]) -> dict[str, list[str]]:
    """Names that several modules define, and where; a command may have the name of the function that does its work."""
    commands = {f"cli/{function.replace('.', '.py ')}" for function, _ in COMMANDS.values()}
    places = defaultdict(list)
    for module, source in sources.items():
        for name in defined(source) - HOOKS.keys():
            places[f"{module} {name}" in commands, name].append(module)
    return {name: modules for (_, name), modules in places.items() if len(modules) > 1}


def test_a_public_name_has_one_meaning():
    assert repeated(
        {"a.py": "A, b = 1, 2\ndef f(): pass", "c.py": "class A: pass\nf: int = 1\n_x = 1", "d.py": "_x = 2"}
    ) == {
        "A": ["a.py", "c.py"],
        "f": ["a.py", "c.py"],
    }
    sources = {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    assert {"core/shapings.py", "tasks/registry.py"} <= sources.keys()
    assert repeated(sources) == {}, "rename one, or begin it with an underscore if no other module takes it"
