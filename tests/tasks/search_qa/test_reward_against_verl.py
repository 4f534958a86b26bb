"""Agreement with veRL's own exact match on honest responses, and each difference that is meant."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_trgrpo.tasks import compute_score

verl = pytest.importorskip("verl.utils.reward_score.search_r1_like_qa_em")

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
