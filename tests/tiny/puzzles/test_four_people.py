"""Warm starts and data sets for other numbers of people than the quickstart's."""

import json

import pyarrow.parquet
import pytest

from verl_trgrpo.tiny.puzzles.dataset import build_dataset
from verl_trgrpo.tiny.puzzles.demonstrations import WarmStartPuzzles
from verl_trgrpo.tiny.puzzles.training import WarmStartOptions
from verl_trgrpo.tiny.puzzles.warm_start import build


def sources(path):
    return pyarrow.parquet.read_table(path, columns=["data_source"]).column(0).to_pylist()


def test_counts_by_number_of_people(tmp_path):
    assert build_dataset(tmp_path, 0, {2: 3, 4: 5}, {4: 2}) is True
    assert sorted(sources(tmp_path / "train.parquet")) == ["kk_2ppl"] * 3 + ["kk_4ppl"] * 5
    assert sources(tmp_path / "test.parquet") == ["kk_4ppl"] * 2
    assert json.loads((tmp_path / "manifest.json").read_text())["arguments"]["train"] == {"2ppl": 3, "4ppl": 5}
    assert build_dataset(tmp_path, 0, {2: 3, 4: 5}, {4: 2}) is False
    assert build_dataset(tmp_path, 0, {2: 3, 4: 6}, {4: 2}) is True


def test_the_test_set_does_not_depend_on_the_train_set(tmp_path):
    for name, train in (("a", {3: 4}), ("b", {3: 9, 2: 2})):
        build_dataset(tmp_path / name, 1, train, {3: 6})
    tables = [pyarrow.parquet.read_table(tmp_path / name / "test.parquet").to_pylist() for name in "ab"]
    assert [row["prompt"] for row in tables[0]] == [row["prompt"] for row in tables[1]]


def test_more_puzzles_than_exist_are_refused(tmp_path):
    with pytest.raises(ValueError, match="only"):
        build_dataset(tmp_path, 0, {2: 500}, {2: 5})


def test_a_warm_start_with_four_people_measures_each_size(tmp_path):
    build(tmp_path, WarmStartOptions(puzzles=4, steps=1, batch_size=2, test_puzzles=1, most_people=4))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["arguments"]["most_people"] == 4
    assert {*manifest["accuracy"]} == {"2ppl", "3ppl", "4ppl"}


def test_unknown_sizes_are_refused():
    with pytest.raises(ValueError, match="most_people is 5; it must be one of 3, 4"):
        WarmStartOptions(most_people=5)


def test_the_sets_are_disjoint():
    """What the warm start may use, by construction, is never in a data set."""
    from verl_trgrpo.tasks.knights_and_knaves.puzzles import canonical_key, generate_puzzles

    for puzzle in generate_puzzles(4, 20, 3, exclude=WarmStartPuzzles()):
        assert canonical_key(puzzle.statements) not in WarmStartPuzzles()
