"""Generated puzzles: their solutions, their number, no repetition, and their wording."""

import itertools
import random
import re
import subprocess
import sys

import pytest

from tests.tasks.knights_and_knaves.kk_oracle import count_puzzles, random_statement, smallest_renaming, solutions
from verl_trgrpo.tasks.knights_and_knaves.logic import canonical_key
from verl_trgrpo.tasks.knights_and_knaves.puzzles import (
    CAPACITY,
    INSTRUCTION,
    PERSON_NAMES,
    SPEECH_TEMPLATES,
    english,
    generate_puzzles,
    puzzle_prompt,
)


@pytest.mark.parametrize("n_people", range(2, 9))
def test_every_puzzle_has_the_stated_solution_and_no_other(n_people):
    puzzles = list(generate_puzzles(n_people, 40, seed=11))
    assert [puzzle.origin for puzzle in puzzles] == [f"generated/{n_people}ppl/seed11#{k}" for k in range(1, 41)]
    for puzzle in puzzles:
        assert solutions(puzzle.statements) == [puzzle.solution]
        assert len(puzzle.names) == len(set(puzzle.names)) == len(puzzle.statements) == n_people
        assert all(re.search(rf"\b{name}\b", puzzle.quiz) for name in puzzle.names)


@pytest.mark.parametrize(("n_people", "count"), [(2, 95), (3, 300), (4, 150), (5, 40)])
def test_no_puzzle_equals_another_one_even_with_other_names(n_people, count):
    puzzles = list(generate_puzzles(n_people, count, seed=2))
    assert len({smallest_renaming(puzzle.statements) for puzzle in puzzles}) == count


def test_the_stream_depends_on_seed_and_size_and_continues_with_the_count():
    first = list(generate_puzzles(4, 30, seed=5))
    assert list(generate_puzzles(4, 50, seed=5))[:30] == first
    assert list(generate_puzzles(4, 30, seed=6)) != first
    assert list(generate_puzzles(4, 30, seed=-5)) != first


def test_excluded_puzzles_do_not_come_back():
    test_keys = {canonical_key(puzzle.statements) for puzzle in generate_puzzles(2, 40, seed=0)}
    others = list(generate_puzzles(2, 50, seed=1, exclude=test_keys))
    assert len(others) == 50
    assert not {canonical_key(puzzle.statements) for puzzle in others} & test_keys


@pytest.mark.parametrize("n_people", CAPACITY)
def test_the_number_of_different_puzzles_is_known(n_people):
    assert count_puzzles(n_people) == CAPACITY[n_people]


@pytest.mark.parametrize(("n_people", "count"), [(2, 96), (2, 1_000_000), (3, 15_089), (4, 3_392_963)])
def test_more_than_exist_are_refused_before_the_search(n_people, count):
    with pytest.raises(ValueError, match=rf"people={n_people}: {count} .* {CAPACITY[n_people]} "):
        next(generate_puzzles(n_people, count, 0))


def test_the_search_ends_when_every_puzzle_was_met():
    """95 different puzzles with two people exist."""
    excluded = {canonical_key(puzzle.statements) for puzzle in generate_puzzles(2, 90, seed=0)}
    found = []
    with pytest.raises(ValueError, match="only 5 of 6 different puzzles with 2 people"):
        found.extend(generate_puzzles(2, 6, 1, excluded))
    assert len(found) == 5


class Everything:
    """Container of all keys."""

    def __contains__(self, key):
        return True


def test_a_search_that_finds_nothing_warns_and_ends(monkeypatch, caplog):
    monkeypatch.setattr("verl_trgrpo.tasks.knights_and_knaves.puzzles.FIRST_WARNING", 100)
    monkeypatch.setattr("verl_trgrpo.tasks.knights_and_knaves.puzzles.MAX_BARREN_DRAWS", 500)
    with pytest.raises(ValueError, match=r"only 0 of 6 .* 500 draws"):
        next(generate_puzzles(5, 6, 1, Everything()))
    assert [record.args[1] for record in caplog.records] == [100, 200, 400]


def test_the_prompt_is_instructions_and_quiz():
    (puzzle,) = generate_puzzles(3, 1, 0)
    assert puzzle_prompt(puzzle) == [{"role": "user", "content": f"{INSTRUCTION}\n\n{puzzle.quiz}"}]
    assert not [name for name in PERSON_NAMES if name in INSTRUCTION], "the example must not name anybody"


def test_importing_the_package_is_light():
    names = "logic puzzles reward rows"
    imports = "; ".join(f"import verl_trgrpo.tasks.knights_and_knaves.{name}" for name in names.split())
    heavy = "{'verl', 'vllm', 'ray', 'torch', 'datasets', 'reasoning_gym', 'pyarrow'}"
    code = f"import sys; {imports}; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


PEOPLE = ["Zoey", "Oliver", "Emily"]


def read_claim(text, names):
    """Read an English claim back into a statement: a reader that knows only the words, not how they were written."""
    words = text.replace("if and only if", "iff").replace("it is not the case that", "not")
    tokens = re.findall(r"[()]|[^\s()]+", words)

    def claim():
        if tokens[0] == "if":
            tokens.pop(0)
            left = operand()
            assert tokens.pop(0) == "then"
            return ("->", left, operand())
        operands, connectives = [operand()], []
        while tokens and tokens[0] in ("and", "or", "iff"):
            connectives.append(tokens.pop(0))
            operands.append(operand())
        assert len(set(connectives)) <= 1, "without parentheses, mixed connectives are ambiguous"
        return (connectives[0].replace("iff", "<=>"), *operands) if connectives else operands[0]

    def operand():
        if tokens[0] == "(":
            tokens.pop(0)
            inner = claim()
            assert tokens.pop(0) == ")"
            return inner
        if tokens[0] == "not":
            tokens.pop(0)
            return ("not", operand())
        name, verb = tokens.pop(0), tokens.pop(0)
        assert verb == "is"
        negated = tokens[0] == "not"
        if negated:
            tokens.pop(0)
        assert tokens.pop(0) == "a"
        fact = ({"knight": "telling-truth", "knave": "lying"}[tokens.pop(0)], names.index(name))
        return ("not", fact) if negated else fact

    statement = claim()
    assert not tokens, f"left over: {tokens}"
    return statement


@pytest.mark.parametrize("terse", [False, True])
def test_a_reader_gets_the_same_statement_back(terse):
    rng = random.Random(3)
    for _ in range(400):
        statement = random_statement(3, rng, 3)
        text = english(statement, PEOPLE, terse)
        assert read_claim(text, PEOPLE) == statement, text


@pytest.mark.parametrize(
    ("statement", "text", "terse"),
    [
        (("lying", 1), "Oliver is a knave", "Oliver is a knave"),
        (("not", ("telling-truth", 0)), "Zoey is not a knight", "Zoey is not a knight"),
        (
            ("<=>", ("lying", 1), ("telling-truth", 0)),
            "Oliver is a knave if and only if Zoey is a knight",
            "Oliver is a knave iff Zoey is a knight",
        ),
        (
            ("not", ("or", ("lying", 1), ("lying", 2))),
            "it is not the case that (Oliver is a knave or Emily is a knave)",
            "not (Oliver is a knave or Emily is a knave)",
        ),
    ],
)
def test_wording(statement, text, terse):
    assert english(statement, PEOPLE) == text
    assert english(statement, PEOPLE, terse=True) == terse


@pytest.mark.parametrize("n_people", [2, 3, 8])
def test_the_quiz_lets_every_person_say_their_own_statement(n_people):
    for puzzle in generate_puzzles(n_people, 30, seed=1):
        people, _, speeches = puzzle.quiz.partition(f"You meet {n_people} inhabitants: ")[2].partition(". ")
        assert re.findall(r"\w+", people.replace(" and ", " ")) == list(puzzle.names)
        position = 0
        for name, statement in zip(puzzle.names, puzzle.statements, strict=True):
            claim = english(statement, puzzle.names)
            position = speeches.lower().index(claim.lower(), position)
            assert name in speeches[max(0, position - 40) : position + len(claim) + 40]


def test_names_are_many_and_none_hides_in_another_one_or_in_the_fixed_text():
    assert len(set(PERSON_NAMES)) == len(PERSON_NAMES) >= 60
    assert not [(a, b) for a, b in itertools.permutations(PERSON_NAMES, 2) if a.lower() in b.lower()]
    fixed = " ".join([*SPEECH_TEMPLATES, INSTRUCTION]).lower()
    assert not [name for name in PERSON_NAMES if name.lower() in fixed]
