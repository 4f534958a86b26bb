"""Answers and golds: which are right, and which are read."""

import numpy as np
import pytest

from verl_trgrpo.tasks import compute_score

GOLD = {"target": ["Paris", "City of Light"]}
SOURCES = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")


def score(response, gold=GOLD):
    return compute_score("search_qa", response, gold)


@pytest.mark.parametrize("name", [*(f"searchR1_{source}" for source in SOURCES), "search_qa"])
def test_every_set_has_this_reward(name):
    expected = {"score": 1.0, "acc": 1.0, "format_ok": 1.0, "f1": 1.0, "gold_unparseable": 0.0, "timed_out": 0.0}
    assert compute_score(name, "<answer>paris</answer>", GOLD) == expected


@pytest.mark.parametrize(
    "answer", ["Paris", " paris.\n", "the Paris", "PARIS!!", "P-a-r-i-s", "city of light", "The  City of\tLight"]
)
def test_right_answers_up_to_case_punctuation_articles_and_spaces(answer):
    result = score(f"<think>x</think><answer>{answer}</answer>")
    assert (result["score"], result["acc"], result["f1"]) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "answer",
    [
        "London",
        "",
        " ",
        "...",
        "the",
        "Paris, London",
        "London or Paris or Rome",
        "Paris is the capital",
        "not Paris",
        "Pariś",
        "Ｐａｒｉｓ",
    ],
)
def test_wrong_answers(answer):
    result = score(f"<answer>{answer}</answer>")
    assert (result["score"], result["acc"], result["format_ok"]) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize("response", ["", "Paris", "<answer>Paris", "Paris</answer>", "</answer>Paris<answer>"])
def test_no_answer_block(response):
    assert score(response) == dict.fromkeys(("score", "acc", "format_ok", "f1", "gold_unparseable", "timed_out"), 0.0)


@pytest.mark.parametrize(
    ("answer", "f1"),
    [
        ("Paris France", 2 * (1 / 2) * 1 / (1 / 2 + 1)),
        ("bright city of the light", 2 * (3 / 4) * 1 / (3 / 4 + 1)),
        ("paris paris paris", 2 * (1 / 3) * 1 / (1 / 3 + 1)),
        ("of", 2 * 1 * (1 / 3) / (1 + 1 / 3)),
        ("Rome", 0.0),
    ],
)
def test_f1_is_the_best_harmonic_mean_of_precision_and_recall(answer, f1):
    assert score(f"<answer>{answer}</answer>")["f1"] == pytest.approx(f1, abs=1e-12)


@pytest.mark.parametrize(
    ("response", "acc"),
    [
        ("<answer>London</answer> no, <answer>Paris</answer>", 1.0),
        ("<answer>Paris</answer> no, <answer>London</answer>", 0.0),
        ("<answer>Paris</answer> no, <answer>London", 1.0),
        ("I put it in <answer> tags: <answer>Paris</answer>", 1.0),
        ("<answer>Paris</answer></answer>", 1.0),
        ("<answer>London<answer>Paris</answer></answer>", 1.0),
        ("<answer>Paris</answer> <search>Paris</search>", 1.0),
    ],
)
def test_the_last_complete_block_is_the_answer(response, acc):
    assert score(response)["acc"] == acc


@pytest.mark.parametrize(
    "gold", ["Paris", ["Paris"], ("Paris",), np.array(["Paris"], dtype=object), {"target": "Paris"}]
)
def test_golds_may_be_a_text_a_list_or_an_array(gold):
    assert score("<answer>Paris</answer>", gold)["acc"] == 1.0
    assert score("<answer>Paris</answer>", {"target": np.array(["x", "Paris"], dtype=object)})["acc"] == 1.0


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [("The", "the", ""), ("The", "THE", "a"), ("A", " a ", "the"), ("+", "+", "-"), ("!!!", "!!!", "...")],
)
def test_a_gold_of_articles_or_punctuation_is_compared_as_it_stands(gold, right, wrong):
    assert score(f"<answer>{right}</answer>", [gold])["acc"] == 1.0
    result = score(f"<answer>{wrong}</answer>", [gold])
    assert (result["acc"], result["gold_unparseable"]) == (0.0, 0.0)


def test_a_blank_gold_beside_others_matches_nothing():
    one_blank = score("<answer>Paris</answer>", ["", "Paris"])
    assert (one_blank["acc"], one_blank["gold_unparseable"]) == (1.0, 0.0)
    assert score("<answer></answer>", ["", "Paris"])["acc"] == 0.0
