import random
from collections import Counter
from itertools import islice, product

from verl_trgrpo.tasks.knights_and_knaves.puzzles import canonical_key, generate_puzzles
from verl_trgrpo.tiny.puzzles.demonstrations import (
    HeldOutPuzzles,
    WarmStartPuzzles,
    varied_puzzles,
    vary,
    warm_start_puzzles,
)


def test_every_key_is_on_one_side_and_about_half_on_each():
    keys = [canonical_key(puzzle.statements) for puzzle in generate_puzzles(3, 400, seed=1)]
    warm = [key for key in keys if key in WarmStartPuzzles()]
    assert [key for key in keys if key not in HeldOutPuzzles()] == warm
    assert 160 < len(warm) < 240  # four standard deviations around 200


def test_the_two_sides_stay_where_they_are():
    # SHA-256 of "a" begins with ca, that of "b" with 3e (published test values of the algorithm).
    assert ("a" in WarmStartPuzzles(), "b" in WarmStartPuzzles()) == (False, True)
    assert ("a" in HeldOutPuzzles(), "b" in HeldOutPuzzles()) == (True, False)


def test_warm_start_puzzles_never_appear_among_the_others():
    warm = {canonical_key(puzzle.statements) for puzzle in warm_start_puzzles(3, 200, seed=3)}
    others = {canonical_key(p.statements) for p in generate_puzzles(3, 200, seed=3, exclude=WarmStartPuzzles())}
    assert len(warm) == len(others) == 200
    assert not warm & others


def test_variations_are_the_same_puzzle_with_its_solution():
    rng = random.Random(0)
    for puzzle in warm_start_puzzles(3, 30, seed=4):
        variation = vary(puzzle, rng)
        assert canonical_key(variation.statements) == canonical_key(puzzle.statements)
        assert len(set(variation.names)) == 3
        fitting = [x for x in product([True, False], repeat=3) if fits(variation.statements, x)]
        assert fitting == [variation.solution]


def fits(statements, assignment):
    return all(holds(statement, assignment) == assignment[i] for i, statement in enumerate(statements))


def holds(statement, assignment):
    operator, *operands = statement
    if operator in ("telling-truth", "lying"):
        return assignment[operands[0]] == (operator == "telling-truth")
    truths = [holds(operand, assignment) for operand in operands]
    tables = {"and": (False, False, False, True), "or": (False, True, True, True), "<=>": (True, False, False, True)}
    if operator == "not":
        return not truths[0]
    if operator == "->":
        return truths[1] if truths[0] else True
    return tables[operator][2 * truths[0] + truths[1]]


def test_variations_reorder_people_and_operands():
    rng = random.Random(0)
    (puzzle,) = [p for p in warm_start_puzzles(3, 50, seed=4) if sum(s[0] == "and" for s in p.statements) == 2][:1]
    variations = {vary(puzzle, rng).statements for _ in range(300)}
    assert len(variations) == 24  # 3! orders of the people times 2 orders of the operands of each "and"


def test_sizes_are_drawn_in_the_given_shares():
    pools = {2: warm_start_puzzles(2, 5, seed=0), 3: warm_start_puzzles(3, 5, seed=0)}
    stream = varied_puzzles(pools, {2: 0.25, 3: 0.75}, random.Random(0))
    sizes = Counter(len(puzzle.names) for puzzle in islice(stream, 2000))
    assert 420 < sizes[2] < 580  # four standard deviations around 500
