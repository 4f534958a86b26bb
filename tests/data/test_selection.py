import pytest

from verl_trgrpo.data.selection import draw
from verl_trgrpo.data.sources import directory_sha256


def test_a_draw_keeps_the_order_repeats_nothing_and_depends_on_the_seed():
    items = [f"item {number}" for number in range(50)]
    draws = [draw(items, 10, f"seed {seed}") for seed in range(5)]
    for drawn in draws:
        assert len({*drawn}) == 10
        assert drawn == [item for item in items if item in drawn]
    assert len({*map(tuple, draws)}) == 5
    assert draw(items, 10, "seed 0") == draws[0]


@pytest.mark.parametrize("count", [None, 3, 4])
def test_all_are_drawn_where_there_are_no_more(count):
    assert draw(("a", "b", "c"), count, "seed") == ["a", "b", "c"]


def test_the_hash_of_a_directory_depends_on_the_names_and_contents_of_visible_files_only(tmp_path):
    def make(name, files):
        for path, text in files.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
        return directory_sha256(tmp_path / name)

    first = make("first", {"a.json": "1", "b/c.json": "2"})
    assert make("other place", {"b/c.json": "2", "a.json": "1"}) == first
    assert make("hidden", {"a.json": "1", "b/c.json": "2", ".git/HEAD": "x", "b/.state": "y", ".c": "z"}) == first
    assert make("changed", {"a.json": "1", "b/c.json": "3"}) != first
    assert make("renamed", {"a.json": "1", "b/d.json": "2"}) != first
    assert make(".below a hidden one", {"a.json": "1", "b/c.json": "2"}) == first
