"""Prompts and worked responses; every step of these is checked by an evaluator of the test's own."""

import itertools
import re

import pytest

from tests.tasks.knights_and_knaves.kk_oracle import holds
from verl_trgrpo.tasks.knights_and_knaves.prompts import (
    BEGIN,
    END,
    INSTRUCTION,
    format_solution,
    puzzle_prompt,
    search_text,
)
from verl_trgrpo.tasks.knights_and_knaves.puzzles import NAMES, Puzzle, english, generate_puzzles

PUZZLE = Puzzle(
    quiz="You meet Zoey and Oliver. Zoey says ...",
    names=("Zoey", "Oliver"),
    statements=(("lying", 1), ("not", ("lying", 1))),
    solution=(True, False),
)


def test_format_solution():
    assert format_solution(["Zoey", "Oliver"], [True, False]) == "(1) Zoey is a knight\n(2) Oliver is a knave"


def test_the_prompt_is_instructions_and_quiz_in_one_message_or_in_two():
    (together,) = puzzle_prompt(PUZZLE)
    system, user = puzzle_prompt(PUZZLE, system=True)
    assert (together["role"], system["role"], user["role"]) == ("user", "system", "user")
    assert together["content"] == f"{system['content']}\n\n{user['content']}" == f"{INSTRUCTION}\n\n{PUZZLE.quiz}"
    assert all(tag in INSTRUCTION for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    assert not [name for name in NAMES if name in INSTRUCTION], "the example must name nobody"


STEP = re.compile(
    r"(?:Suppose (?P<first>\w+) is a knight\.|Then let (?P<second>\w+) be a knave\.) "
    r"(?:No claim is ruled out so far\."
    r"|This cannot be: (?P<speaker>\w+), a (?P<role>\w+), claims that (?P<claim>.+), which is now (?P<truth>true|false)\.)"
)


BACK = re.compile(r"Neither role works for (?P<person>\w+) here, so back to (?P<earlier>\w+)\.")


def open_cases(roles, n_people):
    """The assignments that agree with the roles of the first people."""
    return [(*roles, *rest) for rest in itertools.product([True, False], repeat=n_people - len(roles))]


def is_ruled_out(puzzle, roles, person):
    """Whether what `person` claims never fits their role, however the roles of the others are completed."""
    cases = open_cases(roles, len(puzzle.names))
    return all(holds(puzzle.statements[person], case) != case[person] for case in cases)


def check_step(match, puzzle, roles):
    """Check one step, the last of `roles` being new; return whether it ends in a contradiction."""
    ruled_out = [puzzle.names[person] for person in range(len(roles)) if is_ruled_out(puzzle, roles, person)]
    if match["speaker"] is None:
        assert not ruled_out
        return False
    assert match["speaker"] in ruled_out
    speaker = puzzle.names.index(match["speaker"])
    assert match["role"] == ("knight" if roles[speaker] else "knave")
    assert match["claim"] == english(puzzle.statements[speaker], puzzle.names)
    truths = {holds(puzzle.statements[speaker], case) for case in open_cases(roles, len(puzzle.names))}
    assert truths == {match["truth"] == "true"}
    return True


def follow(text, puzzle):
    """Follow the search step by step and return the roles at its end, and how many steps it took."""
    begin, *lines, end = text.split("\n")
    assert (begin, end) == (BEGIN, END)
    roles, contradiction = [], False
    for line in lines:
        match = STEP.fullmatch(line)
        if match is None:
            # Back: both roles of the last person have been tried, the knave just now and in vain.
            back = BACK.fullmatch(line)
            assert contradiction
            assert roles[-1] is False
            assert back["person"] == puzzle.names[len(roles) - 1]
            roles.pop()
            assert back["earlier"] == puzzle.names[len(roles) - 1]
            continue
        if match["first"]:
            assert not contradiction, "a contradiction must be resolved first"
            assert match["first"] == puzzle.names[len(roles)]
            roles.append(True)
        else:
            assert contradiction, "a role may change only after a contradiction"
            assert roles[-1] is True
            assert match["second"] == puzzle.names[len(roles) - 1]
            roles[-1] = False
        contradiction = check_step(match, puzzle, roles)
    assert not contradiction
    return tuple(roles), len(lines)


@pytest.mark.parametrize("n_people", range(2, 9))
def test_every_step_of_the_search_is_right_and_it_ends_at_the_solution(n_people):
    lengths = set()
    for puzzle in generate_puzzles(n_people, 60 if n_people < 7 else 15, seed=8):
        roles, length = follow(search_text(puzzle), puzzle)
        assert roles == puzzle.solution
        lengths.add(length)
    assert len(lengths) > 3, "the sample must have searches of different lengths"


def test_the_search_goes_back_over_several_people():
    # Were Ann a knight, Bob would be one, and Cid, who claims to be a knight exactly if Ann is a knave, could be neither.
    statements = (
        ("telling-truth", 1),
        ("telling-truth", 0),
        ("<=>", ("telling-truth", 2), ("lying", 0)),
    )
    puzzle = Puzzle("", ("Ann", "Bob", "Cid"), statements, (False, False, True))
    text = search_text(puzzle)
    backs = [BACK.fullmatch(line).groups() for line in text.split("\n") if line.startswith("Neither")]
    assert backs == [("Cid", "Bob"), ("Bob", "Ann")]
    assert follow(text, puzzle)[0] == (False, False, True)


def test_a_wrong_step_is_noticed():
    """The checker of this file can fail."""
    puzzle = next(p for p in generate_puzzles(4, 50, seed=8) if "This cannot be" in search_text(p))
    text = search_text(puzzle)
    wrong = [
        re.sub(
            r"which is now (true|false)",
            lambda m: f"which is now {'false' if m[1] == 'true' else 'true'}",
            text,
            count=1,
        ),
        re.sub(r"This cannot be: .*", "No claim is ruled out so far.", text, count=1),
        text.replace("No claim is ruled out so far.", "This cannot be: nobody speaks.", 1),
    ]
    for changed in wrong:
        assert changed != text
        with pytest.raises((AssertionError, TypeError)):
            follow(changed, puzzle)
