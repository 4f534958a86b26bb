"""Puzzles of the quickstart: solvable, disjoint, unseen in the warm start."""

import re

import pyarrow.parquet as pq
import pytest

from verl_trgrpo.demos import puzzles
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.knights_and_knaves.puzzles import CAPACITY, format_solution, generate_puzzles


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    directory = tmp_path_factory.mktemp("quickstart")
    assert puzzles.build_dataset(directory) is True
    return directory


def rows(directory, split):
    return pq.read_table(directory / f"{split}.parquet").to_pylist()


def check_rewards(found):
    """The reward takes the solution, and not the opposite of it."""
    for row in found:
        truth = row["reward_model"]["ground_truth"]
        opposite = re.sub("knight|knave", lambda role: "knave" if role[0] == "knight" else "knight", truth)
        for answer, score in ((truth, 1.0), (opposite, 0.0)):
            text = f"<think>x</think><answer>{answer}</answer>"
            assert compute_score(row["data_source"], text, truth)["acc"] == score


def test_the_quickstarts_puzzles_are_one_stream_of_different_ones_without_warm_start_puzzles(quickstart):
    """One stream of distinct puzzles cut in two has disjoint parts, up to renaming and reordering people."""
    found = {split: rows(quickstart, split) for split in ("train", "test")}
    assert [len(found[split]) for split in ("train", "test")] == [puzzles.TRAIN[3], puzzles.TEST[3]]
    stream = generate_puzzles(3, puzzles.TRAIN[3] + puzzles.TEST[3], 0, exclude=puzzles.WARM_START)
    truths = sorted(row["reward_model"]["ground_truth"] for split in found.values() for row in split)
    assert truths == sorted(format_solution(puzzle.names, puzzle.solution) for puzzle in stream)
    assert not {row["prompt"][0]["content"] for row in found["train"]} & {
        row["prompt"][0]["content"] for row in found["test"]
    }
    check_rewards(found["test"][:20])


def test_a_second_build_reuses_and_another_seed_replaces(tmp_path):
    counts = {2: 3, 4: 5}, {4: 2}
    assert puzzles.build_dataset(tmp_path, 0, *counts) is True
    before = (tmp_path / "test.parquet").read_bytes()
    assert puzzles.build_dataset(tmp_path, 0, *counts) is False
    assert sorted(row["data_source"] for row in rows(tmp_path, "train")) == ["kk_2ppl"] * 3 + ["kk_4ppl"] * 5
    assert puzzles.build_dataset(tmp_path, 1, *counts) is True
    assert (tmp_path / "test.parquet").read_bytes() != before


def test_the_halves_have_all_puzzles_and_one_has_no_more_than_its_own(tmp_path):
    both = puzzles.WARM_START, puzzles.HELD_OUT
    sizes = [len([*generate_puzzles(2, count, 0, exclude=half)]) for count, half in zip((47, 48), both, strict=True)]
    assert sum(sizes) == CAPACITY[2]
    with pytest.raises(ValueError, match="47 of 48 different puzzles with 2 people"):
        puzzles.build_dataset(tmp_path, 0, {2: 40}, {2: 8})
    assert not list(tmp_path.glob("*.parquet"))


def test_the_halves_stay_where_they_are():
    # SHA-256 of "a" begins with ca, that of "b" with 3e (published test values).
    assert ("a" in puzzles.WARM_START, "b" in puzzles.WARM_START) == (False, True)
    assert ("a" in puzzles.HELD_OUT, "b" in puzzles.HELD_OUT) == (True, False)
