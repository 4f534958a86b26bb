import itertools
import random

import pytest

from tests.tasks.knights_and_knaves.kk_oracle import holds, random_statement, solutions
from verl_trgrpo.tasks.knights_and_knaves.logic import (
    MAX_DEPTH,
    MAX_LITERAL_LENGTH,
    evaluate,
    knight_masks,
    misfit_masks,
    parse_statements,
    solve,
    unique_solution,
)


@pytest.mark.parametrize("n_people", range(1, 9))
def test_solve_finds_what_trying_every_assignment_finds(n_people):
    rng = random.Random(n_people)
    counts = set()
    for _ in range(60 if n_people < 7 else 20):
        statements = tuple(random_statement(n_people, rng, 3) for _ in range(n_people))
        expected = solutions(statements)
        counts.add(min(len(expected), 2))
        assert solve(statements) == expected
        assert unique_solution(statements) == (expected[0] if len(expected) == 1 else None)
    assert counts == {0, 1, 2}, "the sample must contain every kind of puzzle"


def test_solve_of_a_puzzle_solved_by_hand():
    # If person 0 says "we are both knaves", the truth of it would make a knight a knave; so 0 lies and 1 does not.
    assert solve((("and", ("lying", 0), ("lying", 1)), ("telling-truth", 1))) == [(False, True)]


def test_evaluate_agrees_with_plain_recursion_on_every_assignment():
    rng = random.Random(0)
    for _ in range(50):
        statement = random_statement(3, rng, 3)
        for assignment in itertools.product([True, False], repeat=3):
            assert evaluate(statement, assignment) is holds(statement, assignment)


@pytest.mark.parametrize("n_people", [1, 2, 4])
def test_bit_sets_hold_the_assignments_in_their_documented_order(n_people):
    rng = random.Random(n_people)
    assignments = list(itertools.product([True, False], repeat=n_people))
    for _ in range(30):
        statements = tuple(random_statement(n_people, rng, 2) for _ in range(n_people))
        knights, misfits = knight_masks(n_people), misfit_masks(statements)
        for number, assignment in enumerate(assignments):
            for person, statement in enumerate(statements):
                assert bool(knights[person] >> number & 1) is assignment[person]
                assert bool(misfits[person] >> number & 1) is (holds(statement, assignment) != assignment[person])


def test_parse_reads_what_repr_writes():
    rng = random.Random(1)
    for n_people in range(1, 9):
        statements = tuple(random_statement(n_people, rng, 3) for _ in range(n_people))
        assert parse_statements(f" {statements!r}\n") == statements


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "type NoneType"),
        ("", "not a Python literal"),
        ("(('lying', 1)", "not a Python literal"),
        ("__import__('os').getcwd()", "not a Python literal"),
        ("(('lying', 1 + 1), ('lying', 0))", "not a Python literal"),
        ("\0", "not a Python literal"),
        ("(" * 5000 + ")" * 5000, "nest 5000 brackets"),
        ("[" * 100, "nest 100 brackets"),
        ("-" * 9000 + "1", "not a Python literal"),
        (" " * (MAX_LITERAL_LENGTH + 1), f"at most {MAX_LITERAL_LENGTH}"),
        ("7", "one statement for each"),
        ("()", "one statement for each"),
        ("[('lying', 0)]", "one statement for each"),
        (repr((("lying", 0),) * 9), "one statement for each"),
        ("('lying', 0)", "begins with an operator"),
        ("((),)", "begins with an operator"),
        ("(['lying', 0],)", "begins with an operator"),
        ("(('lying', 1),)", "from 0 to 0"),
        ("(('lying', -1),)", "from 0 to 0"),
        ("(('lying', True),)", "from 0 to 0"),
        ("(('lying', 0.0),)", "from 0 to 0"),
        ("(('lying',),)", "from 0 to 0"),
        ("(('lying', 0, 0),)", "from 0 to 0"),
        ("(('xor', ('lying', 0), ('lying', 0)),)", "'xor'"),
        ("(('not', ('lying', 0), ('lying', 0)),)", "'not' has 2 operands"),
        ("(('->', ('lying', 0)),)", "'->' has 1 operands"),
        ("(('and', ('lying', 0)),)", "'and' has 1 operands"),
        ("(('and', 0, 1),)", "begins with an operator"),
    ],
)
def test_parse_refuses(text, reason):
    with pytest.raises(ValueError) as caught:
        parse_statements(text)
    assert reason in str(caught.value)


def test_parse_refuses_more_nesting_than_it_states_and_takes_as_much():
    statement = ("lying", 0)
    for _ in range(MAX_DEPTH - 1):
        statement = ("not", statement)
    assert parse_statements(repr((statement,))) == (statement,)
    with pytest.raises(ValueError, match="operators"):
        parse_statements(repr((("not", statement),)))


def test_solve_refuses_malformed_statements():
    with pytest.raises(ValueError, match="from 0 to 1"):
        solve((("lying", 2), ("lying", 0)))
