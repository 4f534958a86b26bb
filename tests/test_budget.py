"""The budget of lines that `make lint` compares: room for a contribution in every room, and a total that only falls."""

import pytest

from tests.scripts import ROOT, load_scripts

[budget] = load_scripts(ROOT / ".ci", "budget")


@pytest.fixture
def rooms(tmp_path):
    """A package with two rooms of one module each, and their figures."""
    for room, lines in (("core", 100), ("tasks", 2000)):
        (tmp_path / "verl_trgrpo" / room).mkdir(parents=True)
        (tmp_path / "verl_trgrpo" / room / "__init__.py").touch()
        add(tmp_path, room, lines)
    return {"verl_trgrpo/core": [100, 1], "verl_trgrpo/tasks": [2000, 1]}


def add(root, room, lines):
    """Add a module."""
    folder = root / "verl_trgrpo" / room
    (folder / f"module{len([*folder.iterdir()])}.py").write_text("pass\n" * lines)


@pytest.mark.parametrize(
    ("room", "lines", "total", "named"),
    [
        ("core", 20, 2200, ""),
        ("core", 21, 2200, "verl_trgrpo/core: 121 lines in 2 modules, at most 120 in 2"),
        ("tasks", 40, 2200, ""),
        ("tasks", 41, 2200, "verl_trgrpo/tasks: 2041 lines"),
        ("tasks", 40, 2139, "verl_trgrpo: 2140 lines, at most 2139"),
    ],
)
def test_a_contribution_fits_and_a_subject_does_not(tmp_path, rooms, room, lines, total, named):
    add(tmp_path, room, lines)
    found = budget.problems(tmp_path, rooms, [3000, total])
    assert [text.startswith(named) for text in found] == ([True] if named else []), found


def test_a_second_new_module_a_room_without_budget_and_a_total_that_rises_are_named(tmp_path, rooms):
    for _ in range(2):
        add(tmp_path, "core", 1)
    (tmp_path / "verl_trgrpo/new").mkdir()
    (tmp_path / "verl_trgrpo/new/__init__.py").touch()
    add(tmp_path, "new", 1)
    found = budget.problems(tmp_path, rooms | {"gone": [1, 1]}, [3000, 3001])
    assert [text.split(":")[0] for text in found] == [
        "verl_trgrpo/new",
        "verl_trgrpo/core",
        "gone",
        "total=[3000, 3001]",
    ]
