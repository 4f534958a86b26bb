"""Ground truths: every type becomes a list of texts and loses nothing."""

import math

import pytest

from verl_trgrpo.tasks.math.answers import answers_agree, number_text, read_answers

KEPT = {
    "a text": ("\\frac{1}{2}", ["\\frac{1}{2}"]),
    "leading zeros": ("025", ["025"]),
    "a text that is a float": ("1.0", ["1.0"]),
    "dollars": ("$\\frac{1}{2 n+2}$", ["$\\frac{1}{2 n+2}$"]),
    "a line end": ("9.6\n", ["9.6"]),
    "spaces inside": (" 7 \\times 10^{37} ", ["7 \\times 10^{37}"]),
    "an int": (142, ["142"]),
    "a negative int": (-4, ["-4"]),
    "zero": (0, ["0"]),
    "a long int": (10**400, ["1" + "0" * 400]),
    "a whole float": (142.0, ["142"]),
    "a float with zeros before the point": (1200.0, ["1200"]),
    "a negative zero": (-0.0, ["0"]),
    "a fraction": (0.5, ["0.5"]),
    "a float that binary cannot hold": (0.1, ["0.1"]),
    "a large float": (1e23, ["1" + "0" * 23]),
    "a small float": (1.5e-7, ["0.00000015"]),
    "a list": (["0.01\n", "0.02\n"], ["0.01", "0.02"]),
    "a list of numbers": ([1, 2.0, 2.5], ["1", "2", "2.5"]),
    "a list with a repetition": (["188", "188\n", "189"], ["188", "189"]),
    "a comma is part of one answer": (["$69$,$84$"], ["$69$,$84$"]),
}


@pytest.mark.parametrize("name", KEPT)
def test_an_answer_keeps_its_meaning(name):
    value, expected = KEPT[name]
    assert read_answers(value) == expected


REFUSED = [
    *(None, True, False, math.nan, math.inf, -math.inf, b"1"),
    *("", " \n", "\ud800", "9" * 2001, 10**2001),
    *([], [None], ["1", ""], [["1"]], [{"a": 1}], [math.nan], [True]),
    *({}, {"a": "1"}),
]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: ascii(value)[:20])
def test_what_is_no_answer_is_refused(value):
    with pytest.raises(ValueError, match=r"an answer is|the row has no answer"):
        read_answers(value)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-300, 1.7976931348623157e308, 123456.789, 2.0**70, -1e-5])
def test_a_number_as_text_is_the_same_number_without_an_exponent(value):
    assert float(number_text(value)) == value
    assert "e" not in number_text(value)


def test_what_is_kept_can_be_graded():
    from verl_trgrpo.tasks import compute_score

    for value, response in ((1.0, "1"), ("1.0", "1"), ("025", "25"), (0.5, "\\frac{1}{2}"), (["3\n", "4"], "4")):
        score = compute_score("deepscaler", f"\\boxed{{{response}}}", read_answers(value))
        assert score["acc"] == 1.0, (value, response)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (["5"], ["5.0"], True),
        (["007"], ["7"], True),
        (["0.50"], ["0.5"], True),
        (["$x + 1$"], ["x+1"], True),
        (["1", "2"], ["3", "2"], True),
        (["50"], ["5"], False),
        (["0.5"], ["0.05"], False),
        (["-5"], ["5"], False),
        (["1" + "0" * 40], ["1" + "0" * 39 + "1"], False),
        (["x"], ["X"], False),
    ],
)
def test_answers_agree_where_text_or_plain_number_is_the_same(one, other, expected):
    assert answers_agree(one, other) is expected
    assert answers_agree(other, one) is expected
