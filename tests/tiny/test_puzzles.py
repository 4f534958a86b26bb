"""Puzzles of the warm start, their variations, and the demonstrations that solve them."""

import random
import re
from collections import Counter
from itertools import islice, product, repeat
from pathlib import Path

import pytest

from tests.tasks.knights_and_knaves.kk_oracle import holds, solutions
from verl_trgrpo.tasks.knights_and_knaves.logic import canonical_key
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles
from verl_trgrpo.tiny.puzzles import (
    HELD_OUT,
    WARM_START,
    PuzzleWarmStart,
    demonstration,
    numbered_quiz,
    truth_table_reasoning,
    vary,
    warm_start_puzzles,
)

RESPONSE = re.compile(r"<think>(.*)</think><answer>(.*)</answer>", re.DOTALL)


def keys(puzzles):
    return [canonical_key(puzzle.statements) for puzzle in puzzles]


def test_every_key_is_on_one_side_and_about_half_on_each():
    found = keys(generate_puzzles(3, 400, seed=1))
    warm = [key for key in found if key in WARM_START]
    assert [key for key in found if key not in HELD_OUT] == warm
    assert 160 < len(warm) < 240  # four standard deviations around 200
    # The sides stay where they are: SHA-256 of "a" begins with ca, that of "b" with 3e (published test values).
    assert ("a" in WARM_START, "b" in WARM_START) == (False, True)


def test_variations_are_the_same_puzzle_with_its_solution():
    rng = random.Random(0)
    for puzzle in warm_start_puzzles(3, 30, seed=4):
        variation = vary(puzzle, rng)
        assert canonical_key(variation.statements) == canonical_key(puzzle.statements)
        assert len(set(variation.names)) == 3
        assert solutions(variation.statements) == [variation.solution]


def test_variations_reorder_people_and_operands():
    rng = random.Random(0)
    (puzzle,) = [p for p in warm_start_puzzles(3, 50, seed=4) if sum(s[0] == "and" for s in p.statements) == 2][:1]
    variations = {vary(puzzle, rng).statements for _ in range(300)}
    assert len(variations) == 24  # 3! orders of the people times 2 orders of the operands of each "and"


def test_demonstrations_have_the_sizes_and_the_carefulness_asked_for():
    options = PuzzleWarmStart(out=Path(), puzzles=5, most_people=4)
    drawn = [*islice(options.demonstrations(random.Random(0), repeat(0.25)), 2000)]
    sizes = Counter(len(example.messages[0]["content"].split("\n")) for example in drawn)
    careful = sum("guess" not in example.segments[0].text for example in drawn)
    # Four standard deviations around the expected counts.
    assert abs(sizes[2] - 200) < 54 and abs(sizes[3] - 600) < 82 and abs(sizes[4] - 1200) < 88
    assert abs(careful - 500) < 78


def test_numbers_stand_for_people():
    statements = (("or", ("lying", 0), ("lying", 1)), ("not", ("lying", 0)))
    assert numbered_quiz(["Zoey", "Oliver"], statements) == (
        "(1) Zoey: (1) is a knave or (2) is a knave\n(2) Oliver: (1) is not a knave"
    )
    statements = (("->", ("lying", 2), ("telling-truth", 1)), ("lying", 0), ("<=>", ("lying", 0), ("lying", 1)))
    assert numbered_quiz(["Ann", "Bob", "Cid"], statements) == (
        "(1) Ann: if (3) is a knave then (2) is a knight\n(2) Bob: (1) is a knave\n"
        "(3) Cid: (1) is a knave iff (2) is a knave"
    )


def check_line(line, puzzle, assignment):
    """Compare one line with truths worked out here; return whether the assignment fits."""
    n_people = len(puzzle.names)
    roles, rest = line.split(" ")[:n_people], " ".join(line.split(" ")[n_people:])
    assert roles == ["K" if is_knight else "N" for is_knight in assignment]
    checks = re.findall(r"\((\d)\) ([TF ]+) (ok|no)", rest)
    assert " ".join(f"({number}) {truths} {verdict}" for number, truths, verdict in checks) == rest
    for person, (number, truths, verdict) in enumerate(checks):
        assert int(number) == person + 1
        statement = puzzle.statements[person]
        parts = [] if statement[0] in ("telling-truth", "lying") else statement[1:]
        assert truths.split(" ") == ["FT"[holds(part, assignment)] for part in [*parts, statement]]
        assert (verdict == "ok") == (holds(statement, assignment) == assignment[person])
    verdicts = [verdict for *_, verdict in checks]
    assert verdicts[:-1] == ["ok"] * (len(verdicts) - 1)
    assert verdicts[-1] == "no" or len(verdicts) == n_people
    return verdicts[-1] == "ok"


@pytest.mark.parametrize("n_people", [2, 4])
def test_every_line_of_the_table_is_right_and_only_the_last_fits(n_people):
    for puzzle in generate_puzzles(n_people, 40, seed=5):
        lines = truth_table_reasoning(puzzle).split("\n")
        assignments = list(product([True, False], repeat=n_people))
        fits = [check_line(line, puzzle, assignment) for line, assignment in zip(lines, assignments, strict=False)]
        assert fits == [False] * (len(lines) - 1) + [True]
        assert assignments[len(lines) - 1] == puzzle.solution


def answered(text):
    return tuple(line.endswith(" is a knight") for line in text.split("\n"))


def test_a_careful_demonstration_reasons_and_is_right():
    for puzzle in generate_puzzles(3, 20, seed=6):
        text = demonstration(puzzle, True, random.Random(0))
        reasoning, answer = RESPONSE.fullmatch(text).groups()
        assert reasoning == truth_table_reasoning(puzzle)
        assert answered(answer) == puzzle.solution
        assert [line.split(" ")[1] for line in answer.split("\n")] == list(puzzle.names)


def test_a_careless_demonstration_draws_every_assignment_equally_often():
    puzzle = next(generate_puzzles(2, 1, seed=6))
    rng = random.Random(3)
    draws = 4000
    counts = Counter()
    for _ in range(draws):
        reasoning, answer = RESPONSE.fullmatch(demonstration(puzzle, False, rng)).groups()
        assert reasoning == "guess"
        counts[answered(answer)] += 1
    assert len(counts) == 4
    chi_square = sum((count - draws / 4) ** 2 / (draws / 4) for count in counts.values())
    assert chi_square < 16.3  # 99.9 % of uniform samples with 3 degrees of freedom
