"""Problems from rows: which columns and answers, what is malformed, what repeats."""

import math

import pytest

from verl_trgrpo.data.sources import ANSWER_COLUMNS, PROBLEM_COLUMNS, LeftOutRowError, Record, parse_records
from verl_trgrpo.tasks.math.problems import (
    CONTRADICTED,
    REPEATED,
    Problem,
    ProblemColumns,
    find_repetitions,
    problem_of,
    read_answers,
)


def test_columns_of_the_known_data_sets():
    for row in ({"problem": " Why?\n", "answer": "1", "level": 3}, {"question": "Why?", "final_answer": ["1"]}):
        assert problem_of(Record(row, "a", 1)) == Problem("Why?", ["1"], "a#1")
    apart = {"body": "Seven apples and two pears. ", "question": "How many?", "answer": "9", "context": None}
    assert problem_of(Record(apart, "a", 1)).text == "Seven apples and two pears. How many?"


def parsed(row, **columns):
    """The problem of a row as a builder reads it."""
    return parse_records([Record(row, "a", 1)], lambda record: problem_of(record, ProblemColumns(**columns))).items[0]


@pytest.mark.parametrize("spelled", [str, str.upper, str.title, lambda name: name.replace("_", "")])
def test_every_usual_column_is_found_in_any_spelling(spelled):
    for problem in PROBLEM_COLUMNS:
        for answer in ANSWER_COLUMNS:
            assert parsed({spelled(problem): "Why?", spelled(answer): 1}) == Problem("Why?", ["1"], "a#1")


def test_named_columns_are_read_and_no_others():
    row = {"riddle": "Why?", "problem": "Which?", "Reply": "1", "answer": "2"}
    assert parsed(row, problem="Riddle", answer="reply") == Problem("Why?", ["1"], "a#1")
    with pytest.raises(ValueError, match="missing column gold "):
        parsed(row, answer="gold")


def test_svamp_s_layout():
    row = {
        "ID": "chal-1", "Body": "Each pack costs 76 dollars.", "Question": "How much is a pack at 25 dollars less?",
        "Equation": "( 76.0 - 25.0 )", "Answer": 51.0, "Type": "Subtraction",
    }  # fmt: skip
    assert parsed(row) == Problem("Each pack costs 76 dollars. How much is a pack at 25 dollars less?", ["51"], "a#1")


# Four choices and an answer that names the third, as public sets write them.
CHOICES = {
    "MMLU": {"choices": ["1", "4", "9", "16"], "answer": 2},
    "AQuA": {"options": ["A)1", "B)4", "C)9", "D)16"], "correct": "C"},
    "MathQA": {"options": "a ) 1 , b ) 4 , c ) 9 , d ) 16", "correct": "c"},
    "ARC": {"choices": {"text": ["1", "4", "9", "16"], "label": ["A", "B", "C", "D"]}, "answerKey": "C"},
    "columns": {"A": "1", "B": "4", "C": "9", "D": "16", "answer": "(C)"},
    "a mapping": {"options": {"A": "1", "B": "4", "C": "9", "D": "16", "E": None}, "answer": "C. 9"},
    "a list as text": {"options": "['1', '4', '9', '16']", "answer": "9"},
    "null and a label": {"choices": ["1", "4", "9", "16"], "answer": None, "label": "C"},
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_in_the_prompt_and_the_letter_is_the_answer(name):
    row = {"question": "What is three squared?", **CHOICES[name]}
    problem = parsed(row, answer="answerKey" if "answerKey" in row else "")
    assert problem == Problem("What is three squared?\nA. 1\nB. 4\nC. 9\nD. 16", ["C"], "a#1")


@pytest.mark.parametrize(
    ("choices", "answer"),
    [(["2", "4"], 5), (["2", "0"], 0), (["2", "4"], "C"), (["2", "2"], "2"), (["2"], "A"), ([{"x": 1}, {}], "A"),
     (["2", "4", "2"], "A")],
)  # fmt: skip
def test_an_answer_that_may_name_none_or_two_of_the_choices_is_refused(choices, answer):
    with pytest.raises(ValueError, match="choices"):
        parsed({"question": "Which?", "choices": choices, "answer": answer})


def test_choices_that_the_problem_states_are_not_repeated():
    text = "Which? (A) 1 (B) 4"
    assert parsed({"question": text, "choices": ["1", "4"], "answer": "B"}) == Problem(text, ["B"], "a#1")


def test_a_row_without_an_answer_is_known_as_such():
    with pytest.raises(LeftOutRowError):
        problem_of(Record({"problem": "Why?", "answer": " "}, "a", 1))


MALFORMED = {
    "no problem": (
        {"riddle": "Why?", "answer": "1"},
        "missing column problem or question or prompt or content or input or query or messages (found riddle, answer)",
    ),
    "a problem of null": ({"problem": None, "answer": "1"}, "the problem is blank"),
    "a prompt of several messages": ({"prompt": [{"content": "a"}, {"content": "b"}], "answer": "1"}, "the problem is"),
    "a picture": ({"problem": "Why?", "answer": "1", "image_1": "x.png"}, "image_1 is not text"),
    "a context of another type": ({"problem": "Why?", "answer": "1", "context": {"a": 1}}, "context is not a string"),
    "an empty problem": ({"problem": " \n", "answer": "1"}, "the problem is"),
    "a problem of another type": ({"problem": ["Why?"], "answer": "1"}, "the problem is"),
    "a chat tag": ({"problem": "Why?<|im_end|>", "answer": "1"}, "contains <|im_end|>"),
    "no answer": (
        {"problem": "Why?", "solution": "1"},
        "(found problem, solution); name the",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_row_is_refused_with_its_reason(name):
    row, reason = MALFORMED[name]
    with pytest.raises(ValueError) as caught:
        problem_of(Record(row, "a", 1))
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
    "a list as text": ("['2916']", ["2916"]),
    "a list as text, of which all is the answer": ("['4812', '5']", ["4812, 5"]),
    "alternatives as NumPy prints them": ("['5' '6,5']", ["5", "6,5"]),
    "an interval": ("[1, 2]", ["[1, 2]"]),
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
