"""Which answers count as right."""

import numpy as np
import pytest

from tests.judge.cases import KINDS, RIGHT, WRONG
from verl_trgrpo.judge.equality import equal_answers
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.reward_input import reward_input

UNDERSTOOD = {"gold_unparseable": 0.0, "timed_out": 0.0, "restated": 0.0}


def score(gold, answer, **options):
    return compute_score("math", rf"So the answer is $\boxed{{{answer}}}$.", gold, **options)


@pytest.mark.parametrize(("gold", "answer"), RIGHT.values(), ids=RIGHT.keys())
def test_right(gold, answer):
    assert score(gold, answer) == {"score": 1.0, "acc": 1.0, "format_ok": 1.0, "f1": 1.0, **UNDERSTOOD}


@pytest.mark.parametrize(("gold", "answer"), WRONG.values(), ids=WRONG.keys())
def test_wrong(gold, answer):
    assert score(gold, answer) == {"score": 0.0, "acc": 0.0, "format_ok": 1.0, "f1": 0.0, **UNDERSTOOD}


@pytest.mark.parametrize(
    ("kind", "gold", "answer"), [(kind, *pair) for kind, (right, _) in KINDS.items() for pair in right]
)
def test_a_spelling_of_the_value_is_right(kind, gold, answer):
    assert score(gold, answer)["acc"] == 1.0


@pytest.mark.parametrize(
    ("kind", "gold", "answer"), [(kind, *pair) for kind, (_, wrong) in KINDS.items() for pair in wrong]
)
def test_another_value_is_wrong(kind, gold, answer):
    result = score(gold, answer)
    assert (result["acc"], result["timed_out"]) == (0.0, 0.0)


@pytest.mark.parametrize("response", ["5", r"\boxed{5", r"<think> \boxed{5}", ""])
def test_no_answer_is_not_well_formed(response):
    assert compute_score("math", response, "5") == {"score": 0.0, "acc": 0.0, "format_ok": 0.0, "f1": 0.0, **UNDERSTOOD}


def test_the_data_source_minerva_takes_rounded_golds_unless_told_otherwise():
    def right(gold, answer, source="minerva", **options):
        return compute_score(source, rf"\boxed{{{answer}}}", gold, **options)["acc"] == 1.0

    assert right("9.6", "9.5954") and not right("9.6", "9.66")
    assert right("0.33", r"\frac{1}{3}") and not right("0.33", r"\frac{1}{4}")
    assert not right("9.6", "9.5954", rounded_gold=False)
    assert right("9.6", "9.5954", "math", rounded_gold=True) and not right("9.6", "9.5954", "math")


@pytest.mark.parametrize(
    "gold",
    [["1/2", "0.7"], ("1/2", "0.7"), np.array(["1/2", "0.7\n"], dtype=object), np.array([0.5, 0.7])],
    ids=["list", "tuple", "array of texts", "array of floats"],
)
def test_any_of_several_golds_may_match(gold):
    assert score(gold, "0.5")["acc"] == 1.0
    assert score(gold, "0.6")["acc"] == 0.0


@pytest.mark.parametrize(
    "gold", [{"question": "What is 1+1?", "target": "2"}, {"target": ["2"]}, np.float64(2.0), np.int64(2), 2, 2.0, "2"]
)
def test_numbers_of_any_kind_are_golds(gold):
    assert score(gold, "2")["acc"] == 1.0


def test_the_longest_gold_has_2000_characters():
    assert score("5".rjust(2000), "5")["acc"] == 1.0


PROSE = "$f(x)=a x+b$, where $b$ is an odd integer, and $a$ is positive"


def test_an_unparseable_gold_is_told_apart_from_a_wrong_answer():
    assert score(PROSE, "5")["gold_unparseable"] == 1.0
    assert compute_score("math", "no answer", PROSE)["gold_unparseable"] == 1.0
    assert score(PROSE, PROSE) == {"score": 1.0, "acc": 1.0, "format_ok": 1.0, "f1": 1.0, **UNDERSTOOD}
    assert score([PROSE, "5"], "6")["gold_unparseable"] == 0.0
    assert score([PROSE, "x+1"], "1+x")["acc"] == 1.0


def test_a_wrong_time_limit_is_refused():
    with pytest.raises(ValueError, match=r"time_limit is 0"):
        score("5", "5", math_time_limit=0)


def test_an_answer_much_longer_than_the_gold_is_wrong_without_the_judge():
    def asked(gold, answer):
        return equal_answers([gold], answer, lambda *formulas: True)

    sums = ["x+" * 39 + "xy", "x+" * 39 + "xyz"]  # 80 and 81 characters
    assert [asked("y+1", text) for text in sums] == [True, False]
    assert asked("y+" * 13 + "z", sums[1])  # 27 characters, of which it may have three times as many


def test_scoring_prints_nothing(capfd):
    score("x+1", r"\frac{\undefined")
    score(PROSE, "1")
    assert capfd.readouterr() == ("", "")


COUNTED = "How many purple zebras are left?\nA) a dozen\nB) none of them\nC) twelve zebras"


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("12", r"12 \text{ zebras}", 1), ("12", "12 purple zebras", 1), ("12", r"12 \text{ left}", 1), ("12",
        r"12 \text{ green zebras}", 0),
        ("12", r"12 \text{ giraffes}", 0), ("12", r"12 \text{ dozen}", 0), ("C", r"\text{C) twelve zebras}", 1), ("B",
        r"\text{(B) none of them}", 1),
        ("B", r"\text{(B) none}", 1), ("C", r"\text{(C) a dozen}", 0), ("B", r"\text{(B) or C}", 0),
    ],
)  # fmt: skip
def test_words_of_the_question_are_understood(gold, answer, right):
    assert score(gold, answer, extra_info=reward_input({}, COUNTED))["acc"] == right


DENIALS = (
    "not", "NOT", "never", "no", "or 7", "7 or", "7 vs", "7 otherwise", "it's not", "I do not know", "any value except",
    "anything but",
    "maybe", "probably", "nicht", "wrong answer", "value is not",
    "the answer is not", "total unlike", "不是", r"\neg", r"\lnot", r"\not",
    r"\sim", r"\nsim", "seven", "7 is",
)  # fmt: skip
PLACES = ("{} x=5", r"\text{{{}}}=5", r"\text{{{} }}x=5", "{}=5", r"x \text{{ {} }} y=5", r"x_{{\text{{{}}}}}=5")
SENTENCES = [
    r"{}, or 7", "{}; or 7", "{} -- or 7", "{} … or 7", "{} perhaps 7", "{}, maybe 7", "{} vs 7", "{} otherwise 7",
    "{} isn't right",
    "{} (wrong)", "{}: wrong", "{}. That is wrong.", "{}?", "{}, but I'm not sure", r"\boxed{{7}} and {}", r"\boxed{{7}}, {}",
    r"\boxed{{7}} \quad {}",
    "It cannot be {}", "It can't possibly be {}",
    r"not \textbf{{{}}}", "It is anything but {}", "wrong: {}",
    "I refuse to say {}", "{} and 7.",
]  # fmt: skip
QUANTITIES = (
    r"\text{Area}", r"\text{Area of } ABC", r"\text{Total cost}", "Total", r"P(A|B)", r"f^{-1}(x)",
    r"V_{\text{max}}", r"x_{\min}", "AB", "ABCD",
    r"\angle ABC",
    r"\frac{dy}{dx}",
    r"\overline{AB}", r"\operatorname{Area}", r"\mathrm{E}[X]", r"\lim_{x\to 0} f(x)", r"\vec{v}",
)  # fmt: skip


def test_nothing_but_a_name_may_stand_in_front_of_the_equals_sign():
    texts = [place.format(word) for word in DENIALS for place in PLACES] + ["x\u0338=5", "\u0336x=5", r"7\to x=5"]
    assert [text for text in texts if compute_score("math", rf"\boxed{{{text}}}", "5")["acc"]] == []
    named = [rf"\boxed{{{name}=5}}" for name in QUANTITIES]
    assert [text for text in named if not compute_score("math", text, "5")["acc"]] == []


@pytest.mark.parametrize("box", [r"\boxed{5}", r"$\boxed{5}$", r"**\boxed{5}**"])
def test_a_sentence_that_denies_or_adds_to_the_box_states_nothing(box):
    assert [text for text in SENTENCES if compute_score("math", text.format(box), "5")["acc"]] == []


def test_the_order_of_an_endless_list_counts():
    gold = r"1, -1, 1, -1, \ldots"
    assert compute_score("math", rf"\boxed{{{gold}}}", gold + ".")["acc"]
    assert not compute_score("math", r"\boxed{1, 1, -1, -1, \ldots}", gold)["acc"]
