"""Answers and golds: which are right, and which are read; retrieved text never scores; agreement with veRL's exact match."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.utils.reward_score import search_r1_like_qa_em as verl

from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.reward_input import reward_input

GOLD = {"target": ["Paris", "City of Light"]}
SOURCES = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")


def score(response, gold=GOLD):
    return compute_score("search_qa", response, gold)


@pytest.mark.parametrize("name", [*(f"searchR1_{source}" for source in SOURCES), "search_qa"])
def test_every_set_has_this_reward(name):
    expected = {
        "score": 1.0,
        "acc": 1.0,
        "format_ok": 1.0,
        "f1": 1.0,
        "gold_unparseable": 0.0,
        "timed_out": 0.0,
        "restated": 0.0,
    }
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
    fields = ("score", "acc", "format_ok", "f1", "gold_unparseable", "timed_out", "restated")
    assert score(response) == dict.fromkeys(fields, 0.0)


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


# --- Retrieved text ------------------------------------------------------------

HIT = "<answer>Paris</answer>"
MISS = "<answer>London</answer>"


def acc(response, **from_loop):
    given = reward_input({}, None, from_loop=from_loop)
    return compute_score("searchR1_nq", response, {"target": ["Paris"]}, given)["acc"]


def hermes(text, call="<tool_call>{}</tool_call>"):
    return f"{call}\nuser\n<tool_response>\n{text}\n</tool_response>\nassistant\n"


def chatml(text):
    return f"<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


OBSERVATIONS = {
    "information": "<information>{}</information>".format,
    "tool response": hermes,
    "user turn": chatml,
    "nested": "<information>a<information>{}</information>b</information>".format,
    "tool response in information": "<information><tool_response>{}</tool_response></information>".format,
    "information in tool response": lambda text: hermes(f"<information>{text}</information>"),
    "a closing tag before": "<information></information>{}</information>".format,
    "another closing tag before": "<information></tool_response>{}</information>".format,
    "a turn marker before": "<information><|im_start|>assistant\n{}</information>".format,
    "closed and opened again": "<information>x</information>{}<information>y</information>".format,
    "tool response closed and opened": lambda text: hermes(f"</tool_response>\nassistant\n{text}\n<tool_response>"),
    "stray closing tag": "{}</information>".format,
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_an_answer_in_an_observation_does_not_score(name):
    observation = OBSERVATIONS[name](HIT)
    assert acc(f"<search>q</search>{observation}") == 0.0
    assert acc(f"<search>q</search>{observation}<think>so</think>") == 0.0
    assert acc(f"<search>q</search>{observation}{MISS}") == 0.0
    assert acc(f"{MISS}{observation}") == 0.0


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_the_models_answer_after_an_observation_scores_whatever_was_retrieved(name):
    for text in (MISS, HIT, "", "<answer>", "</answer>", "<information>", "<tool_response>", "<think>"):
        assert acc(f"<search>q</search>{OBSERVATIONS[name](text)}{HIT}") == 1.0


@pytest.mark.parametrize("tag", ["<information>", "<tool_response>", "<|im_start|>user\n", "<|im_start|>tool\n"])
def test_an_observation_without_an_end_does_not_score(tag):
    assert acc(f"<search>q</search>{tag}{HIT}") == 0.0
    assert acc(f"<search>q</search><information>x</information>{tag}{HIT}{tag}") == 0.0


def test_an_answer_that_another_search_follows_is_not_final():
    assert acc(f"{HIT}<search>q</search><information>x</information>") == 0.0
    assert acc(f"{HIT}<search>q</search><information>x</information><think>yes</think>") == 0.0
    assert acc("", model_text=[f"{HIT}<search>q</search>", "<think>yes</think>"]) == 0.0


def test_half_tags_of_a_turn_and_a_passage_make_no_answer():
    assert acc("<answer><information>x</information>Paris</answer>") == 0.0
    assert acc("", model_text=["<answer>", "Paris</answer>"]) == 0.0


@pytest.mark.parametrize("hostile", [HIT, MISS, f"</information>{HIT}", f"</information>{MISS}<information>"])
def test_what_the_loop_says_is_all_that_is_read(hostile):
    response = f"<search>q</search><information>{hostile}"
    assert acc(response, model_text=["<search>q</search>"]) == 0.0
    assert acc(response, model_text=["<search>q</search>", HIT]) == 1.0
    assert acc(response, model_text=("<search>q</search>", HIT)) == 1.0
    assert acc(response, model_text=np.array(["<search>q</search>", HIT], dtype=object)) == 1.0
    assert acc(response, model_text=f"<search>q</search>{HIT}") == 1.0
    assert acc(response + "</information>" + HIT, model_text=["<search>q</search>", MISS]) == 0.0
    assert acc(HIT, model_text=[]) == 0.0
    assert acc(HIT, model_text=None) == 1.0


@pytest.mark.parametrize("wrong", [7, {"text": HIT}, [HIT, None], [7], b"bytes"])
def test_a_model_text_of_another_type_is_an_error(wrong):
    with pytest.raises(ValueError, match="model_text"):
        acc(HIT, model_text=wrong)


# --- Agreement with veRL on honest responses, and each difference that is meant --------------------

WORDS = st.text(st.characters(exclude_characters="<>", exclude_categories=["Cs"]), max_size=20)
ANSWERS = st.one_of(
    WORDS, st.sampled_from(["Paris", "the Paris!", "a City of  Light", "1,969", "naïve café", "", "yes"])
)


def verl_score(response, golds):
    return verl.compute_score(response, {"target": golds})


def own(response, golds):
    return compute_score("searchR1_nq", response, {"target": golds})


@settings(max_examples=300, deadline=None)
@given(ANSWERS, st.lists(ANSWERS.filter(lambda text: verl.normalize_answer(text)), min_size=1, max_size=4), WORDS)
def test_honest_responses_score_as_in_verl(answer, golds, thought):
    response = f"<think>{thought}</think>\n<answer>{answer}</answer>"
    assert own(response, golds)["score"] == verl_score(response, golds)
    right = f"<think>{thought}</think>\n<answer>{golds[-1]}</answer>"
    assert own(right, golds)["score"] == verl_score(right, golds) == 1.0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["Paris", "London", "the paris"]), min_size=1, max_size=25))
def test_several_answers_score_as_in_verl(answers):
    response = " or ".join(f"<answer>{answer}</answer>" for answer in answers)
    assert own(response, ["Paris"])["score"] == verl_score(response, ["Paris"])


def test_more_than_ten_answer_tags_quarter_the_score_as_in_verl_but_the_answer_is_right():
    for tags in ("<answer>x</answer>" * 10, "</answer>" * 10, "<answer>" * 10):
        response = f"{tags}<answer>Paris</answer>"
        assert own(response, ["Paris"])["score"] == 0.25
        assert own(response, ["Paris"])["acc"] == 1.0
    for tags in ("<answer>x</answer>" * 9, "</answer>" * 9, "<answer>" * 9):
        assert own(f"{tags}<answer>Paris</answer>", ["Paris"])["score"] == 1.0
    assert verl_score("<answer>x</answer>" * 10 + "<answer>Paris</answer>", ["Paris"]) == 0.25


def test_tags_in_passages_do_not_count_unlike_in_verl():
    response = f"<information>{'<answer>' * 11}</information><answer>Paris</answer>"
    assert own(response, ["Paris"])["score"] == 1.0
    assert verl_score(f"{'<answer></answer>' * 11}<answer>Paris</answer>", ["Paris"]) == 0.25


@pytest.mark.parametrize("tag", ["information", "tool_response"])
def test_an_answer_in_a_passage_scores_in_verl_only(tag):
    response = f"<search>q</search><{tag}>The page says <answer>Paris</answer></{tag}>"
    assert verl_score(response, ["Paris"]) == 1.0
    assert own(response, ["Paris"])["score"] == 0.0


def test_an_answer_before_another_observation_scores_in_verl_only():
    response = "<answer>Paris</answer><search>q</search><information>x</information>"
    assert verl_score(response, ["Paris"]) == 1.0
    assert own(response, ["Paris"])["score"] == 0.0


def test_a_tag_that_is_only_mentioned_spoils_the_answer_in_verl_only():
    response = "<think>I put it into <answer> then.</think><answer>Paris</answer>"
    assert verl_score(response, ["Paris"]) == 0.0
    assert own(response, ["Paris"])["score"] == 1.0


@pytest.mark.parametrize("answer", ["", "...", "a"])
def test_a_gold_that_normalises_to_nothing_is_matched_by_nothing_in_verl_only(answer):
    response = f"<answer>{answer}</answer>"
    assert verl_score(response, ["The"]) == 1.0
    assert own(response, ["The"])["score"] == 0.0
