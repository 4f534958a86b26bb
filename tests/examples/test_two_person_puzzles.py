"""Puzzles of the small language model: solvable, disjoint, unseen in the warm start."""

import random

import pytest

from examples import two_person_puzzles
from examples.makers import demonstrations
from tests.demos.test_puzzles import check_rewards, rows
from tests.tasks.knights_and_knaves.kk_oracle import solutions
from verl_trgrpo.demos.puzzles import HELD_OUT
from verl_trgrpo.tasks.knights_and_knaves.logic import canonical_key, parse_statements
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles


@pytest.fixture(scope="module")
def small_lm(tmp_path_factory):
    directory = tmp_path_factory.mktemp("small_lm")
    assert two_person_puzzles.build_dataset(directory) and not two_person_puzzles.build_dataset(directory)
    return directory


def test_variations_are_the_same_puzzle_with_its_solution_in_every_order():
    rng = random.Random(0)
    pool = [*generate_puzzles(3, 50, 4, exclude=HELD_OUT)]
    for puzzle in pool[:30]:
        variation = two_person_puzzles.vary(puzzle, rng)
        assert canonical_key(variation.statements) == canonical_key(puzzle.statements)
        assert len(set(variation.names)) == 3
        assert solutions(variation.statements) == [variation.solution]
    two_ands = next(p for p in pool if sum(statement[0] == "and" for statement in p.statements) == 2)
    variations = {two_person_puzzles.vary(two_ands, rng).statements for _ in range(300)}
    assert len(variations) == 24  # 3! orders of the people times 2 orders of the operands of each "and"


def test_the_small_models_test_train_and_warm_start_puzzles_are_different_ones_in_all_names_and_orders(small_lm):
    found = {split: rows(small_lm, split) for split in ("train", "test")}
    assert {split: len(found[split]) for split in found} == two_person_puzzles.ROWS
    keys = {
        split: {canonical_key(parse_statements(row["extra_info"]["statements"])) for row in split_rows}
        for split, split_rows in found.items()
    }
    shown = generate_puzzles(two_person_puzzles.PEOPLE, two_person_puzzles.HALF, 0, exclude=HELD_OUT)
    keys["warm start"] = {canonical_key(puzzle.statements) for puzzle in shown}
    assert len(set.union(*keys.values())) == sum(map(len, keys.values())) == 2 * two_person_puzzles.HALF
    texts = [row["prompt"][0]["content"] for split_rows in found.values() for row in split_rows]
    texts += [demonstration.messages[0]["content"] for demonstration in demonstrations.case_demonstrations(0)]
    assert len({*texts}) == len(texts) == sum(two_person_puzzles.ROWS.values()) + demonstrations.CASES
    check_rewards(found["test"])
