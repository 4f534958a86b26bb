import itertools
import random
import re

import pytest

from tests.tasks.knights_and_knaves.kk_oracle import holds, random_statement
from verl_trgrpo.tasks.knights_and_knaves.prompts import INSTRUCTION
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles
from verl_trgrpo.tasks.knights_and_knaves.wording import NAMES, SPEECH_TEMPLATES, english, short_quiz

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
        (
            ("->", ("and", ("lying", 0), ("lying", 1)), ("lying", 2)),
            "if (Zoey is a knave and Oliver is a knave) then Emily is a knave",
            "if (Zoey is a knave and Oliver is a knave) then Emily is a knave",
        ),
    ],
)
def test_wording(statement, text, terse):
    assert english(statement, PEOPLE) == text
    assert english(statement, PEOPLE, terse=True) == terse


def test_short_quiz_has_a_line_per_person():
    statements = (("or", ("lying", 1), ("telling-truth", 0)), ("telling-truth", 0))
    assert short_quiz(["Zoey", "Oliver"], statements) == (
        "Zoey: Oliver is a knave or Zoey is a knight\nOliver: Zoey is a knight"
    )


@pytest.mark.parametrize("n_people", [2, 3, 8])
def test_the_quiz_lets_every_person_say_their_own_statement(n_people):
    for puzzle in generate_puzzles(n_people, 30, seed=1):
        opening, _, rest = puzzle.quiz.partition(" inhabitants: ")
        assert opening.endswith(f"You meet {n_people}")
        people, _, speeches = rest.partition(". ")
        assert re.findall(r"\w+", people.replace(" and ", " ")) == list(puzzle.names)
        assert speeches.endswith("So who is a knight and who is a knave?")
        # Each claim is read from the text between the words of its speech, in order, and judged on all assignments.
        position = 0
        for name, statement in zip(puzzle.names, puzzle.statements, strict=True):
            claim = english(statement, puzzle.names)
            position = speeches.lower().index(claim.lower(), position)
            assert name in speeches[max(0, position - 40) : position + len(claim) + 40]
            read = read_claim(claim, list(puzzle.names))
            for assignment in itertools.product([True, False], repeat=n_people):
                assert holds(read, assignment) == holds(statement, assignment)


def test_speech_templates_name_the_speaker_and_the_claim_once():
    assert len(set(SPEECH_TEMPLATES)) == len(SPEECH_TEMPLATES) >= 10
    for template in SPEECH_TEMPLATES:
        assert template.count("{name}") == 1
        assert template.count("{claim}") + template.count("{Claim}") == 1


def test_names_are_many_and_none_hides_in_another_one_or_in_the_fixed_text():
    assert len(set(NAMES)) == len(NAMES) >= 60
    assert not [(a, b) for a, b in itertools.permutations(NAMES, 2) if a.lower() in b.lower()]
    fixed = " ".join([*SPEECH_TEMPLATES, INSTRUCTION]).lower()
    assert not [name for name in NAMES if name.lower() in fixed]
