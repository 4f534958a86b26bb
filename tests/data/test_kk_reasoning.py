import random
import re
from collections import Counter
from itertools import product

import pytest
from kk_oracle import holds

from verl_trgrpo.data.kk_puzzles import Puzzle, generate_puzzles
from verl_trgrpo.data.kk_reasoning import careless_reasoning, demonstration, truth_table_reasoning

RESPONSE = re.compile(r"<think>(.*)</think><answer>(.*)</answer>", re.DOTALL)


def answered(text):
    return tuple(line.endswith(" is a knight") for line in text.split("\n"))


@pytest.mark.parametrize("n_people", [2, 3, 4, 5])
def test_the_table_visits_assignments_in_order_and_names_the_first_misfit(n_people):
    for puzzle in generate_puzzles(n_people, 40, seed=8):
        steps = truth_table_reasoning(puzzle, random.Random(0)).split(", ")
        for step, assignment in zip(steps, product([True, False], repeat=n_people), strict=False):
            letters, verdict = step.split(" ")
            assert letters == "".join("FT"[is_knight] for is_knight in assignment)
            fits = [holds(s, assignment) == assignment[i] for i, s in enumerate(puzzle.statements)]
            if verdict == "ok":
                assert all(fits)
                assert assignment == puzzle.solution
            else:
                assert fits.index(False) == int(verdict) - 1
        assert [step for step in steps if step.endswith("ok")] == [steps[-1]]


def test_the_table_of_a_puzzle_worked_by_hand():
    # "We are both knaves" cannot be true: TT and TF fail at person 1. In FT that claim is false and the other one true.
    statements = (("and", ("lying", 0), ("lying", 1)), ("telling-truth", 1))
    puzzle = Puzzle("", ("Zoey", "Oliver"), statements, (False, True), 0)
    assert truth_table_reasoning(puzzle, random.Random(0)) == "TT 1, TF 1, FT ok"


def test_a_careful_demonstration_is_right():
    for puzzle in generate_puzzles(3, 30, seed=9):
        reasoning, answer = RESPONSE.fullmatch(demonstration(puzzle, True, random.Random(0))).groups()
        assert reasoning == truth_table_reasoning(puzzle, random.Random(1))
        assert answered(answer) == puzzle.solution
        assert [line.split(" ")[1] for line in answer.split("\n")] == list(puzzle.names)


def test_a_careless_demonstration_guesses_every_assignment_equally_often():
    puzzle = next(generate_puzzles(3, 1, seed=9))
    rng = random.Random(4)
    draws = 4000
    counts = Counter()
    for _ in range(draws):
        reasoning, answer = RESPONSE.fullmatch(demonstration(puzzle, False, rng)).groups()
        assert reasoning == careless_reasoning(puzzle, rng) == "guess"
        counts[answered(answer)] += 1
    expected = draws / 8
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert len(counts) == 8
    assert chi_square < 24.3  # 99.9 % of uniform samples with 7 degrees of freedom


def test_equal_random_states_give_equal_demonstrations():
    puzzle = next(generate_puzzles(4, 1, seed=9))
    texts = {demonstration(puzzle, careful, random.Random(1)) for careful in (False, True) for _ in range(3)}
    assert len(texts) == 2
