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


PASSAGE = "<search>q</search><{0}>The page says <answer>Paris</answer></{0}>"
# Response, golds, this project's score and veRL's.
DIFFERENCES = {
    "an answer in a passage": (PASSAGE.format("information"), ["Paris"], 0.0, 1.0),
    "an answer in a tool's response": (PASSAGE.format("tool_response"), ["Paris"], 0.0, 1.0),
    "an answer before another observation": (
        "<answer>Paris</answer><search>q</search><information>x</information>", ["Paris"], 0.0, 1.0,
    ),
    "a tag that is only mentioned": (
        "<think>I put it into <answer> then.</think><answer>Paris</answer>", ["Paris"], 1.0, 0.0,
    ),
    "a gold that normalises to nothing": ("<answer>...</answer>", ["The"], 0.0, 1.0),
    "two that normalise to nothing": ("<answer>a</answer>", ["The"], 0.0, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENCES)
def test_differences_that_are_meant(name):
    response, golds, ours, theirs = DIFFERENCES[name]
    assert (own(response, golds)["score"], verl_score(response, golds)) == (ours, theirs)
