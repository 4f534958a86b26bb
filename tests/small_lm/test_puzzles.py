"""Rows that the puzzles' reward can score, none of which the warm start has seen."""

import random
import re
from itertools import islice

import pyarrow.parquet as pq
import pytest

from verl_trgrpo.decontaminate import ContaminationOptions, find_contamination
from verl_trgrpo.small_lm import puzzles
from verl_trgrpo.small_lm.task import TASKS
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.knights_and_knaves.logic import canonical_key, parse_statements
from verl_trgrpo.tasks.knights_and_knaves.puzzles import format_solution, generate_puzzles
from verl_trgrpo.tiny.puzzles import HELD_OUT


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("puzzles")
    task = TASKS["puzzles"]
    assert task.build_dataset(directory) and not task.build_dataset(directory)
    return directory


@pytest.fixture(scope="module")
def rows(directory):
    return {split: pq.read_table(directory / f"{split}.parquet").to_pylist() for split in ("train", "test")}


@pytest.fixture(scope="module")
def shown():
    return [*generate_puzzles(puzzles.PEOPLE, puzzles.HALF, 0, exclude=HELD_OUT)]


def test_test_train_and_warm_start_puzzles_are_different_ones_in_all_names_and_orders(rows, shown):
    assert [len(rows[split]) for split in ("train", "test")] == [puzzles.TRAIN, puzzles.TEST]
    keys = {
        split: {canonical_key(parse_statements(row["extra_info"]["statements"])) for row in found}
        for split, found in rows.items()
    }
    keys["warm start"] = {canonical_key(puzzle.statements) for puzzle in shown}
    assert len(set.union(*keys.values())) == sum(map(len, keys.values())) == 2 * puzzles.HALF
    texts = [row["prompt"][0]["content"] for found in rows.values() for row in found]
    texts += [demonstration.messages[0]["content"] for demonstration in puzzles.warm_start_demonstrations(0)]
    assert len({*texts}) == len(texts) == puzzles.TEST + puzzles.TRAIN + puzzles.DEMONSTRATIONS


def test_the_contamination_check_finds_no_puzzle_of_the_test_file_in_the_train_file(directory):
    # All share the words around the claims, so that runs of words come back; whole puzzles do not, under any names.
    options = ContaminationOptions(directory / "train.parquet", (directory / "test.parquet",), threshold=1.0)
    assert find_contamination(options).matches == ()


def test_the_reward_takes_the_solution_and_nothing_else(rows):
    for row in rows["test"]:
        truth = row["reward_model"]["ground_truth"]
        assert compute_score(row["data_source"], f"<think>So.</think><answer>{truth}</answer>", truth)["acc"] == 1.0
        other = re.sub("knight|knave", lambda role: "knave" if role[0] == "knight" else "knight", truth)
        assert compute_score(row["data_source"], f"<think>So.</think><answer>{other}</answer>", truth)["acc"] == 0.0


def share_right(shown, **shares):
    rng = random.Random(0)
    found = [
        compute_score(
            "kk_2ppl",
            puzzles.demonstration(puzzle, rng, **shares),
            format_solution(puzzle.names, puzzle.solution),
        )["acc"]
        for puzzle in islice(shown * 20, 800)
    ]
    return sum(found) / len(found)


def test_a_careful_demonstration_is_right_and_a_hunch_by_chance_alone(shown):
    assert share_right(shown, hunch=0.0, slip=0.0) == 1.0
    assert 0.19 < share_right(shown, hunch=1.0) < 0.31  # 1/4, four standard errors
    assert 0.4 < share_right(shown) < 0.8
