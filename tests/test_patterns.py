"""No regular expression of the package takes more than work in proportion to what it reads."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import verl_trgrpo
from tests.pattern_steps import METHODS, WHOLE, Search, pumps, repeated, squares

# What they read is short.
SHORT = {
    "judge.answers._POINT": "a part of an answer",
    "tasks.math.words._MARKUP": "a row's question",
    "tasks.math.words._FORMULA": "a row's question",
    "tasks.reasoning_gym.rows._QUOTED": "a row's question",
}


def patterns(name, value):
    """Yield the patterns of a module's value, each with the name by which it is used."""
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield name, value
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        for field, each in value._asdict().items():
            yield from patterns(field, each)
    elif isinstance(value, (dict, list, tuple, set, frozenset)):
        for each in [*value, *(value.values() if isinstance(value, dict) else ())]:
            yield from patterns(name, each)


def uses(root):
    """Return the ways in which each name is searched with, and what is searched with in place: `re.search("...", text)`."""
    ways, inline = {}, []
    for path in root.rglob("*.py"):
        module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS):
                continue
            way = "finditer" if node.func.attr in WHOLE else node.func.attr
            name = getattr(node.func.value, "id", getattr(node.func.value, "attr", None))
            ways.setdefault(name, set()).add(way)
            if name == "re" and isinstance(node.args[0], ast.Constant):
                flags = eval(ast.unparse(node.args[3])) if len(node.args) > 3 else 0
                inline.append((f"{module}:{node.lineno}", re.compile(node.args[0].value, flags), way))
    return ways, inline


def found(root):
    """Yield place, pattern and way of search of every pattern below a package's directory."""
    ways, inline = uses(root)
    seen = set()
    for module in pkgutil.walk_packages([str(root)], f"{root.name}."):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            for used, pattern in patterns(name, value):
                for way in ways.get(used, {"finditer"}):
                    if (pattern, way) not in seen:
                        seen.add((pattern, way))
                        yield f"{module.name}.{name}", pattern, way
    yield from inline


@pytest.fixture(scope="module")
def everywhere():
    """The patterns of the package."""
    return [*found(Path(verl_trgrpo.__file__).parent)]


def too_slow(root, patterns):
    """Return the patterns of the package `root` with what makes them slow."""
    slow = {}
    for place, pattern, way in patterns:
        place = place.removeprefix(f"{root.name}.")
        for front, piece in squares(pattern, way):
            # The mathematics makes gaps single before it reads an answer.
            if not (piece.isspace() and place.startswith("judge.")):
                slow.setdefault((place, pattern.pattern, way), (front, piece))
    return slow


def test_no_pattern_of_the_package_takes_the_square(everywhere):
    slow = too_slow(Path(verl_trgrpo.__file__).parent, everywhere)
    assert {key: why for key, why in slow.items() if key[0] not in SHORT} == {}
    assert {place for place, _, _ in slow} == SHORT.keys(), "an exception that nothing needs"


PLANTED = """
import re
from typing import NamedTuple
class Rule(NamedTuple):
    way: re.Pattern
LINEAR = re.compile(r"(?<!a)a+b")
SQUARE = re.compile(r"a+b")
TABLE = {"x": [Rule(re.compile(r"<a[^>]*>"))]}
MATCHED = re.compile(r"a+b")
def read(text):
    return MATCHED.match(text) or re.search("(?:1,)+x", text)
"""


def test_a_pattern_that_takes_the_square_is_found_wherever_it_stands(tmp_path, monkeypatch):
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").touch()
    (tmp_path / "planted" / "module.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(tmp_path)
    slow = too_slow(tmp_path / "planted", found(tmp_path / "planted"))
    assert {pattern for _, pattern, _ in slow} == {"a+b", r"<a[^>]*>", "(?:1,)+x"}
    assert {place for place, _, _ in slow} >= {"module.SQUARE", "module.TABLE"} and "module.MATCHED" not in slow


@pytest.mark.parametrize(
    "text", [r"a+b", r"(?:1,)+x", r"\s+$", r"\{?(?:\\text\{a\})+x", r"(?:a|a)*b", r"(a*)*b", r"a.*b.*c"]
)
def test_squares_and_worse_are_found(text):
    assert squares(re.compile(text))


@pytest.mark.parametrize("text", [r"(?<![0-9])[0-9]+x", r"<[^<>]{0,400}>", r"a+", r"^a*b", r"(a)\1", r"(?:a|b)*"])
def test_what_is_in_proportion_is_not(text):
    assert not squares(re.compile(text))


def test_the_steps_are_those_of_the_search_that_the_library_makes(everywhere):
    assert {f"verl_trgrpo.{place}" for place in SHORT} <= {place for place, _, _ in everywhere}
    for place, pattern, _ in everywhere:
        for front, piece in pumps(pattern)[:10]:
            text = front + repeated(piece, 30) + "!"
            for way in ("finditer", "match", "fullmatch", "search"):
                made = getattr(pattern, way)(text)
                spans = [match.span() for match in (made if way == "finditer" else [made]) if match]
                assert Search(pattern, text).spans(way) == spans, (place, pattern.pattern, text, way)
