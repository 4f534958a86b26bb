"""Answers and golds: what is right, what is read, and the levels of the score."""

import numpy as np
import pytest

from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.search_qa.reward import score_search_qa

GOLD = {"target": ["Paris", "City of Light"]}
SOURCES = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")


def score(response, gold=GOLD, extra_info=None, **options):
    return compute_score("search_qa", response, gold, extra_info, **options)


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


def test_f1_is_never_the_reward():
    result = score("<answer>Paris France</answer>", structure_format_score=0.2, final_format_score=0.1)
    assert (result["score"], result["acc"]) == (0.1, 0.0)
    assert result["f1"] > 0.6


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
    "gold", [None, 7, [], {}, {"target": []}, {"target": None}, ["Paris", None], [["Paris"]], {"targets": ["Paris"]}]
)
def test_malformed_golds_are_an_error(gold):
    with pytest.raises(ValueError, match=r"the ground truth is .*it needs one or more texts"):
        score("<answer>Paris</answer>", gold)


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [("The", "the", ""), ("The", "THE", "a"), ("A", " a ", "the"), ("+", "+", "-"), ("!!!", "!!!", "...")],
)
def test_a_gold_of_articles_or_punctuation_is_compared_as_it_stands(gold, right, wrong):
    assert score(f"<answer>{right}</answer>", [gold])["acc"] == 1.0
    result = score(f"<answer>{wrong}</answer>", [gold])
    assert (result["acc"], result["gold_unparseable"]) == (0.0, 0.0)


def test_blank_golds_are_flagged_and_match_nothing():
    result = score("<answer> </answer>", ["", " \n"])
    assert (result["score"], result["f1"], result["gold_unparseable"]) == (0.0, 0.0, 1.0)
    one_blank = score("<answer>Paris</answer>", ["", "Paris"])
    assert (one_blank["acc"], one_blank["gold_unparseable"]) == (1.0, 0.0)
    assert score("<answer></answer>", ["", "Paris"])["acc"] == 0.0


QUERY = "<think>I must look it up.</think>\n<search>capital of France</search>"
FOUND = "\n\n<information>Paris is its capital.</information>\n\n"
LAYOUTS = {
    "answer at once": ("<think>x</think> <answer>{}</answer>", True),
    "one search": (QUERY + FOUND + "<think>x</think><answer>{}</answer>", True),
    "two searches": ((QUERY + FOUND) * 2 + "<think>x</think>\n<answer>{}</answer>\n", True),
    "tags in a passage": (
        QUERY
        + "<information>a<information>b</answer></information>c<think></information>"
        + "<think>x</think><answer>{}</answer>",
        True,
    ),
    "end token": ("<think>x</think><answer>{}</answer><|im_end|>", True),
    "no thought": ("<answer>{}</answer>", False),
    "no thought before a search": ("<search>q</search>" + FOUND + "<think>x</think><answer>{}</answer>", False),
    "no thought after a search": (QUERY + FOUND + "<answer>{}</answer>", False),
    "text between": ("<think>x</think> so <answer>{}</answer>", False),
    "text before": ("Well. <think>x</think><answer>{}</answer>", False),
    "text after": ("<think>x</think><answer>{}</answer> Done.", False),
    "two thoughts": ("<think>x</think><think>x</think><answer>{}</answer>", False),
    "two answers": ("<think>x</think><answer>{0}</answer><answer>{0}</answer>", False),
    "a tag in the thought": ("<think>a <search> b</think><answer>{}</answer>", False),
    "an unclosed thought": ("<think>x<answer>{}</answer>", False),
    "a search without results": (QUERY + "<think>x</think><answer>{}</answer>", False),
    "tool calls": (
        "<think>x</think>\n<tool_call>\n{{}}\n</tool_call>\nuser\n<tool_response>\nParis\n</tool_response>\nassistant\n"
        "<think>x</think><answer>{}</answer>",
        True,
    ),
    "tool calls with the template's tokens": (
        "<think>x</think><tool_call>{{}}</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nParis\n"
        "</tool_response>\n<tool_response>\nx\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
        "<think>x</think><answer>{}</answer><|im_end|>",
        True,
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_levels_of_the_optional_format_reward(name):
    response, valid = LAYOUTS[name]
    options = {"structure_format_score": 0.2, "final_format_score": 0.1}
    right, wrong, empty = (score(response.format(answer), **options)["score"] for answer in ("Paris", "London", ""))
    assert right == (1.0 if valid else 0.8)
    assert wrong == empty == (0.2 if valid else 0.1)
    assert score(response.format("Paris"))["score"] == 1.0
    assert score(response.format("London"))["score"] == 0.0


def test_format_reward_needs_an_answer():
    assert score("<think>x</think>", structure_format_score=0.2, final_format_score=0.1)["score"] == 0.0
    assert score(QUERY, structure_format_score=0.2, final_format_score=0.1)["score"] == 0.0


def test_layout_is_judged_on_the_models_own_turns():
    last = "<think>x</think><answer>London</answer>"
    options = {"structure_format_score": 0.2}
    turns = [QUERY, last + "<|im_end|>"]
    assert score("</think>", extra_info={"model_text": turns}, **options)["score"] == 0.2
    assert score("", extra_info={"model_text": [QUERY, QUERY]}, **options)["score"] == 0.0
    assert (
        score("", extra_info={"model_text": [QUERY + "<information>I know</information>", last]}, **options)["score"]
        == 0.0
    )


@pytest.mark.parametrize(
    ("structure", "final"),
    [
        (-0.1, -0.1),
        (0.2, 0.3),
        (0.6, 0.1),
        (float("nan"), 0.0),
        (0.2, -0.1),
        (0.0, 0.1),
        ("0.2", 0.0),
        (0.2, "0.1"),
        (None, 0.0),
        (0.2, None),
    ],
)
def test_wrong_levels_are_an_error(structure, final):
    with pytest.raises(ValueError, match="a right answer is worth most"):
        score_search_qa("", GOLD, {}, structure_format_score=structure, final_format_score=final)
