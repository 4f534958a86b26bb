"""Problems from rows: which columns and answers, what is malformed, what repeats."""

import math

import pytest

from verl_trgrpo.data.sources import Record
from verl_trgrpo.tasks.math.rows import CONTRADICTED, REPEATED, Problem, find_repetitions, read_answers, read_problem


def test_columns_of_the_known_data_sets():
    for row in ({"problem": " Why?\n", "answer": "1", "level": 3}, {"question": "Why?", "final_answer": ["1"]}):
        assert read_problem(Record(row, "a", 1)) == Problem("Why?", ["1"], "a#1")
    apart = {"body": "Seven apples and two pears. ", "question": "How many?", "answer": "9", "context": None}
    assert read_problem(Record(apart, "a", 1)).text == "Seven apples and two pears. How many?"


MALFORMED = {
    "no problem": (
        {"query": "Why?", "answer": "1"},
        "the problem is None; expected words under problem, question or prompt (found query, answer)",
    ),
    "a problem of null": ({"problem": None, "answer": "1"}, "the problem is None"),
    "a prompt of several messages": ({"prompt": [{"content": "a"}, {"content": "b"}], "answer": "1"}, "the problem is"),
    "an empty problem": ({"problem": " \n", "answer": "1"}, "the problem is"),
    "a problem of another type": ({"problem": ["Why?"], "answer": "1"}, "the problem is"),
    "a chat tag": ({"problem": "Why?<|im_end|>", "answer": "1"}, "contains <|im_end|>"),
    "no answer": (
        {"problem": "Why?", "solution": "1"},
        "missing column answer or final_answer (found problem, solution)",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_row_is_refused_with_its_reason(name):
    row, reason = MALFORMED[name]
    with pytest.raises(ValueError) as caught:
        read_problem(Record(row, "a", 1))
    assert reason in str(caught.value)


ANSWERS = {
    "a text": ("\\frac{1}{2}", ["\\frac{1}{2}"]),
    "leading zeros": ("025", ["025"]),
    "dollars and a line end": ("$\\frac{1}{2 n+2}$\n", ["$\\frac{1}{2 n+2}$"]),
    "a negative int": (-4, ["-4"]),
    "a long int": (10**400, ["1" + "0" * 400]),
    "a whole float": (1200.0, ["1200"]),
    "a negative zero": (-0.0, ["0"]),
    "a float that binary cannot hold": (0.1, ["0.1"]),
    "a large float": (1e23, ["1" + "0" * 23]),
    "a small float": (1.5e-7, ["0.00000015"]),
    "a list of alternatives, one twice": (["188", "188\n", 189, 2.5], ["188", "189", "2.5"]),
    "none": (None, []),
    "a blank text": (" \n", []),
    "an empty list": ([], []),
    "a comma is part of one answer": (["$69$,$84$"], ["$69$,$84$"]),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_keeps_its_meaning(name):
    value, expected = ANSWERS[name]
    assert read_answers(value) == expected


@pytest.mark.parametrize(
    "value",
    [True, math.nan, -math.inf, b"1", "9" * 2001, 10**2001, [None], ["1", ""], [["1"]],
     {"a": "1"}],
    ids=lambda value: ascii(value)[:20],
)  # fmt: skip
def test_what_is_no_answer_is_refused(value):
    with pytest.raises(ValueError, match="the ground truth is"):
        read_answers(value)


def test_the_first_of_equal_problems_stays_and_contradicting_ones_all_go():
    problems = [
        Problem("What is  1+1?", ["2"]),
        Problem("What is $x$?", ["1"]),
        Problem("What is\n1+1? ", ["2.0"]),
        Problem("What is $X$?", ["5"]),
        Problem("What is $x$?", ["1"]),
        Problem("What is $x$?", ["3"]),
    ]
    assert find_repetitions(problems) == {2: REPEATED, 1: CONTRADICTED, 4: CONTRADICTED, 5: CONTRADICTED}
    assert find_repetitions([]) == {}


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        (["007"], ["7"], True),
        (["$x + 1$"], ["x+1"], True),
        (["1", "2"], ["3", "2"], True),
        (["\\frac{1}{2}"], ["0.5"], True),
        (["1" + "0" * 40], ["1" + "0" * 39 + "1"], False),
        (["x"], ["X"], False),
    ],
)
def test_answers_agree_where_the_reward_takes_one_for_the_other(one, other, agree):
    dropped = {1: REPEATED} if agree else {0: CONTRADICTED, 1: CONTRADICTED}
    assert find_repetitions([Problem("Why?", one), Problem("Why?", other)]) == dropped
