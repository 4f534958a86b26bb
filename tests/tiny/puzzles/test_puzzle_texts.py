import random
import re
from collections import Counter
from itertools import product

import pytest

from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle, generate_puzzles
from verl_trgrpo.tiny.puzzles.puzzle_texts import (
    CAREFUL_START,
    demonstration,
    numbered_quiz,
    prompt_messages,
    truth_table_reasoning,
)

RESPONSE = re.compile(r"<think>(.*)</think><answer>(.*)</answer>", re.DOTALL)

HAND_MADE = Puzzle("", ("Zoey", "Oliver"), (("or", ("lying", 0), ("lying", 1)), ("not", ("lying", 0))), (), 0)


def holds(statement, assignment):
    operator, *operands = statement
    if operator in ("telling-truth", "lying"):
        return assignment[operands[0]] == (operator == "telling-truth")
    truths = [holds(operand, assignment) for operand in operands]
    if operator == "not":
        return not truths[0]
    return {
        "and": truths[0] and truths[-1],
        "or": truths[0] or truths[-1],
        "->": truths[-1] or not truths[0],
        "<=>": truths[0] == truths[-1],
    }[operator]


def test_numbers_stand_for_people():
    assert numbered_quiz(HAND_MADE.names, HAND_MADE.statements) == (
        "(1) Zoey: (1) is a knave or (2) is a knave\n(2) Oliver: (1) is not a knave"
    )
    statements = (("->", ("lying", 2), ("telling-truth", 1)), ("lying", 0), ("<=>", ("lying", 0), ("lying", 1)))
    assert numbered_quiz(["Ann", "Bob", "Cid"], statements) == (
        "(1) Ann: if (3) is a knave then (2) is a knight\n(2) Bob: (1) is a knave\n"
        "(3) Cid: (1) is a knave iff (2) is a knave"
    )


def test_the_prompt_is_one_message_without_chat_tags():
    (message,) = prompt_messages(HAND_MADE)
    assert message == {"role": "user", "content": numbered_quiz(HAND_MADE.names, HAND_MADE.statements)}


def test_a_table_worked_by_hand():
    # "One of us is a knave" and "the first is a knave". K K: nobody is, so the first one, a knight, would lie. K N: the
    # first one's statement is true; that of the second, a knave, is false. Both fit.
    statements = (("or", ("lying", 0), ("lying", 1)), ("lying", 0))
    puzzle = Puzzle("", ("Zoey", "Oliver"), statements, (True, False), 0)
    assert truth_table_reasoning(puzzle) == "K K (1) F F F no\nK N (1) F T T ok (2) F ok"


def test_a_negation_shows_what_it_negates():
    # "I am not a knave" fits both roles of the first one, so the second one's lie decides.
    statements = (("not", ("lying", 0)), ("<=>", ("lying", 0), ("telling-truth", 0)))
    puzzle = Puzzle("", ("Zoey", "Oliver"), statements, (), 0)
    assert truth_table_reasoning(puzzle).split("\n")[:2] == [
        "K K (1) F T ok (2) F T F no",
        "K N (1) F T ok (2) F T F ok",
    ]


def check_line(line, puzzle, assignment):
    """Compare one line with truths worked out here; return whether the assignment fits."""
    words = line.split(" ")
    n_people = len(puzzle.names)
    assert words[:n_people] == ["K" if is_knight else "N" for is_knight in assignment]
    checks = re.findall(r"\((\d)\) ([TF ]+) (ok|no)", " ".join(words[n_people:]))
    assert " ".join(f"({number}) {truths} {verdict}" for number, truths, verdict in checks) == " ".join(
        words[n_people:]
    )
    for expected, (number, truths, verdict) in enumerate(checks, start=1):
        assert int(number) == expected
        statement = puzzle.statements[expected - 1]
        parts = [] if statement[0] in ("telling-truth", "lying") else list(statement[1:])
        assert truths.split(" ") == ["FT"[holds(part, assignment)] for part in [*parts, statement]]
        assert (verdict == "ok") == (holds(statement, assignment) == assignment[expected - 1])
    verdicts = [verdict for *_, verdict in checks]
    assert verdicts[:-1] == ["ok"] * (len(verdicts) - 1)
    assert verdicts[-1] == "no" or len(verdicts) == n_people
    return verdicts[-1] == "ok"


@pytest.mark.parametrize("n_people", [2, 3, 4])
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
        assert text.startswith(CAREFUL_START)
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
