"""Statements: checks, solutions and the canonical form, against slow and plain counterparts."""

import ast
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.checked_files import OTHER, RENAMED, STATEMENTS
from tests.tasks.knights_and_knaves.kk_oracle import holds, random_statement, renamed, smallest_renaming, solutions
from verl_trgrpo.tasks.knights_and_knaves.logic import (
    MAX_DEPTH,
    MAX_LITERAL_LENGTH,
    canonical_key,
    is_true,
    misfits,
    parse_statements,
    puzzle_key,
    unique_solution,
)


@pytest.mark.parametrize("n_people", range(1, 9))
def test_the_one_solution_is_what_trying_every_assignment_finds(n_people):
    rng = random.Random(n_people)
    counts = set()
    for _ in range(60 if n_people < 7 else 20):
        statements = tuple(random_statement(n_people, rng, 3) for _ in range(n_people))
        expected = solutions(statements)
        counts.add(min(len(expected), 2))
        assert unique_solution(statements) == (expected[0] if len(expected) == 1 else None)
    assert counts == {0, 1, 2}, "the sample must contain every kind of puzzle"


def test_a_puzzle_solved_by_hand():
    # If person 0 says "we are both knaves", the truth of it would make a knight a knave; so 0 lies and 1 does not.
    assert unique_solution((("and", ("lying", 0), ("lying", 1)), ("telling-truth", 1))) == (False, True)


@pytest.mark.parametrize("n_people", [1, 2, 4])
def test_truth_agrees_with_plain_recursion_for_one_assignment_and_for_all_at_once(n_people):
    rng = random.Random(n_people)
    every = list(itertools.product([True, False], repeat=n_people))
    for _ in range(30):
        statements = tuple(random_statement(n_people, rng, 3) for _ in range(n_people))
        table = misfits(statements)
        assert table.shape == (n_people, len(every))
        for number, assignment in enumerate(every):
            for person, statement in enumerate(statements):
                assert is_true(statement, assignment) is holds(statement, assignment)
                assert table[person, number] == (holds(statement, assignment) != assignment[person])


def test_parse_reads_what_repr_writes():
    rng = random.Random(1)
    for n_people in range(1, 9):
        statements = tuple(random_statement(n_people, rng, 3) for _ in range(n_people))
        assert parse_statements(f" {statements!r}\n") == statements


NOT_STATEMENTS = (
    None, "", "(('lying', 1)", "__import__('os').getcwd()", "(('lying', 1 + 1), ('lying', 0))", "\0",
    "(" * 5000 + ")" * 5000, "[" * 100, "-" * 9000 + "1", " " * (MAX_LITERAL_LENGTH + 1), "7", "()", "[('lying', 0)]",
    repr((("lying", 0),) * 9), "('lying', 0)", "((),)", "(['lying', 0],)", "(('lying', 1),)", "(('lying', -1),)",
    "(('lying', True),)", "(('lying', 0.0),)", "(('lying',),)", "(('lying', 0, 0),)",
    "(('xor', ('lying', 0), ('lying', 0)),)", "(('not', ('lying', 0), ('lying', 0)),)", "(('->', ('lying', 0)),)",
    "(('and', ('lying', 0)),)", "(('and', 0, 1),)", "((['not'], ('lying', 0)),)",
)  # fmt: skip


@pytest.mark.parametrize("text", NOT_STATEMENTS)
def test_parse_refuses(text):
    with pytest.raises(ValueError, match="statements"):
        parse_statements(text)


def test_parse_refuses_more_nesting_than_it_states_and_takes_as_much():
    statement = ("lying", 0)
    for _ in range(MAX_DEPTH - 1):
        statement = ("not", statement)
    assert parse_statements(repr((statement,))) == (statement,)
    with pytest.raises(ValueError, match="nested operators"):
        parse_statements(repr((("not", statement),)))


def leaf_puzzles(n_people):
    leaves = [(operator, person) for operator in ("telling-truth", "lying") for person in range(n_people)]
    return itertools.product(leaves, repeat=n_people)


def sampled_puzzles(n_people, count, depth):
    rng = random.Random(n_people * 10 + depth)
    for _ in range(count):
        statements = tuple(random_statement(n_people, rng, depth) for _ in range(n_people))
        yield statements
        order = list(range(n_people))
        rng.shuffle(order)
        yield renamed(statements, tuple(order), rng)


CASES = {
    "3 people, single facts": lambda: leaf_puzzles(3),
    "4 people, single facts": lambda: leaf_puzzles(4),
    "2 people, composed": lambda: sampled_puzzles(2, 400, 2),
    "3 people, composed": lambda: sampled_puzzles(3, 300, 2),
    "5 people, composed": lambda: sampled_puzzles(5, 40, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_keys_are_equal_exactly_where_the_naive_canonical_forms_are(case):
    naive_of, key_of = {}, {}
    for statements in CASES[case]():
        key, naive = canonical_key(statements), smallest_renaming(statements)
        assert naive_of.setdefault(key, naive) == naive, f"one key for two different puzzles, such as {statements}"
        assert key_of.setdefault(naive, key) == key, f"two keys for one puzzle, such as {statements}"
    assert len(naive_of) >= 10


@settings(max_examples=150, deadline=None)
@given(n_people=st.integers(2, 8), seed=st.integers(0, 2**32), depth=st.integers(0, 3))
def test_renaming_people_and_shuffling_operands_keeps_the_key(n_people, seed, depth):
    rng = random.Random(seed)
    statements = tuple(random_statement(n_people, rng, depth) for _ in range(n_people))
    order = list(range(n_people))
    rng.shuffle(order)
    key = canonical_key(statements)
    assert canonical_key(renamed(statements, tuple(order), rng)) == key
    assert canonical_key(ast.literal_eval(key)) == key


# Puzzles in which refinement alone tells few people or none apart: the search over orders has to do the work.
SYMMETRIC = {
    "everybody calls himself a knight": tuple(("telling-truth", i) for i in range(8)),
    "a ring of eight": tuple(("lying", (i + 1) % 8) for i in range(8)),
    "two rings of four": tuple(("lying", (i + 1) % 4 + i // 4 * 4) for i in range(8)),
    "rings of five and three": tuple(("lying", (i + 1) % 5 if i < 5 else 5 + (i - 4) % 3) for i in range(8)),
    "rings of six and two": tuple(("lying", (i + 1) % 6 if i < 6 else 6 + (i - 5) % 2) for i in range(8)),
    "four pairs": tuple(("lying", i ^ 1) for i in range(8)),
    "a ring both ways": tuple(("and", ("lying", (i + 1) % 8), ("lying", (i - 1) % 8)) for i in range(8)),
    "two rings both ways": tuple(
        ("and", ("lying", (i + 1) % 4 + i // 4 * 4), ("lying", (i - 1) % 4 + i // 4 * 4)) for i in range(8)
    ),
    "a cube": tuple(("or", ("lying", i ^ 1), ("lying", i ^ 2), ("lying", i ^ 4)) for i in range(8)),
    "everybody about all others": tuple(("and", *(("lying", j) for j in range(8) if j != i)) for i in range(8)),
}


def test_symmetric_puzzles_of_eight_people_have_different_keys():
    """This takes seconds, and many hours if all orders of eight people are tried."""
    assert len({canonical_key(statements) for statements in SYMMETRIC.values()}) == len(SYMMETRIC)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_symmetric_puzzles_keep_their_key_under_renaming(name):
    rng = random.Random(name)
    for _ in range(30):
        order = rng.sample(range(8), 8)
        assert canonical_key(renamed(SYMMETRIC[name], tuple(order), rng)) == canonical_key(SYMMETRIC[name])


def test_what_means_the_same_but_is_said_differently_stays_different():
    assert canonical_key((("not", ("lying", 1)), ("lying", 0))) != canonical_key((("telling-truth", 1), ("lying", 0)))


def test_the_sides_of_an_implication_do_not_commute():
    one, other = ("telling-truth", 0), ("lying", 1)
    assert canonical_key((("->", one, other), one)) != canonical_key((("->", other, one), one))
    assert canonical_key((("<=>", one, other), one)) == canonical_key((("<=>", other, one), one))


def test_statements_are_read_from_both_places_and_never_evaluated():
    key = puzzle_key({"extra_info": {"statements": STATEMENTS}})
    assert key is not None
    assert key == puzzle_key({"reward_model": {"ground_truth": {"statements": RENAMED}}})
    assert key != puzzle_key({"extra_info": {"statements": OTHER}})
    for odd in ("exit()", "(('lying', 9),)", "", None, 3, ["x"]):
        assert puzzle_key({"extra_info": {"statements": odd}, "reward_model": None}) is None
