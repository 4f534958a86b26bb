"""The quickstart's puzzles: solvable, disjoint, unseen in the warm start, and in the form that veRL and the reward read."""

import pyarrow.parquet as pq
import pytest

from tests.tiny.worlds import unseen_puzzles
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.knights_and_knaves.puzzles import format_solution
from verl_trgrpo.tiny.puzzle_dataset import FILES, TEST, TRAIN, build_dataset


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    assert build_dataset(directory) is True
    return directory


def rows(directory, name):
    return pq.read_table(directory / name).to_pylist()


def test_counts_and_form(built):
    for name, counts in zip(FILES, (TRAIN, TEST), strict=True):
        found = rows(built, name)
        assert len(found) == sum(counts.values())
        assert {row["data_source"] for row in found} == {f"kk_{n}ppl" for n in counts}
        assert [row["extra_info"]["index"] for row in found] == list(range(len(found)))
        for row in found[:20]:
            answer = f"<think>x</think><answer>{row['reward_model']['ground_truth']}</answer>"
            assert compute_score(row["data_source"], answer, row["reward_model"]["ground_truth"])["acc"] == 1.0


def test_the_puzzles_are_those_of_one_distinct_stream_without_warm_start_puzzles(built):
    """One stream of distinct puzzles cut in two has disjoint parts, up to renaming and reordering people."""
    puzzles = unseen_puzzles(3, TRAIN[3] + TEST[3], seed=0)
    solutions = sorted(format_solution(puzzle.names, puzzle.solution) for puzzle in puzzles)
    found = [row["reward_model"]["ground_truth"] for name in FILES for row in rows(built, name)]
    assert sorted(found) == solutions
    prompts = [{row["prompt"][0]["content"] for row in rows(built, name)} for name in FILES]
    assert not prompts[0] & prompts[1]


def test_a_second_build_reuses_and_another_seed_replaces(tmp_path):
    counts = {2: 3, 4: 5}, {4: 2}
    assert build_dataset(tmp_path, 0, *counts) is True
    before = (tmp_path / "test.parquet").read_bytes()
    assert build_dataset(tmp_path, 0, *counts) is False
    assert sorted(row["data_source"] for row in rows(tmp_path, "train.parquet")) == ["kk_2ppl"] * 3 + ["kk_4ppl"] * 5
    assert build_dataset(tmp_path, 1, *counts) is True
    assert (tmp_path / "test.parquet").read_bytes() != before


def test_the_test_set_does_not_depend_on_the_train_set(tmp_path):
    for name, train in (("a", {3: 4}), ("b", {3: 9, 2: 2})):
        build_dataset(tmp_path / name, 1, train, {3: 6})
    one, other = (rows(tmp_path / name, "test.parquet") for name in "ab")
    assert [row["prompt"] for row in one] == [row["prompt"] for row in other]
