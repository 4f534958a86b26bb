"""Properties of the score for any string, and work in proportion to the length of everything that reads a response."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pattern_steps import grows, repeated
from tests.work import counted
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.reward_input import reward_input
from verl_trgrpo.tasks.search_qa.format import read_action

TAGS = [
    *(
        f"<{slash}{name}>"
        for name in ("answer", "information", "tool_response", "think", "search")
        for slash in ("", "/")
    ),
    *("<|im_start|>", "<|im_start|>user", "<|im_start|>assistant\n", "<|im_end|>", "<", "</", "Paris", " "),
]
ANY_TEXT = st.one_of(st.text(), st.lists(st.sampled_from(TAGS), max_size=40).map("".join))
NO_TAGS = st.text(st.characters(exclude_characters="<>", exclude_categories=["Cs"]), max_size=30)
# Golds whose letters stay apart from an added word, which makes them another answer.
GOLDS = st.lists(NO_TAGS.filter(str.strip), min_size=1, max_size=5)


def score(response, golds=("Paris",), **from_loop):
    given = reward_input({}, None, from_loop=from_loop)
    return compute_score("search_qa", response, {"target": list(golds)}, given)


@settings(max_examples=300, deadline=None)
@given(ANY_TEXT, GOLDS)
def test_any_text_gets_a_score_within_bounds(response, golds):
    result = score(response, golds)
    assert 0.0 <= result["score"] <= 1.0
    assert 0.0 <= result["f1"] <= 1.0
    assert result["acc"] in (0.0, 1.0)
    assert result["acc"] <= result["f1"]
    assert result["score"] <= result["acc"]


@settings(max_examples=200, deadline=None)
@given(GOLDS, st.data())
def test_any_alias_scores_full_marks(golds, data):
    answer = data.draw(st.sampled_from(golds))
    result = score(f"<think>x</think><answer>{answer}</answer>", golds)
    assert (result["score"], result["acc"], result["f1"]) == (1.0, 1.0, 1.0)


@settings(max_examples=200, deadline=None)
@given(ANY_TEXT, st.sampled_from(["Paris", "London"]))
def test_no_passage_changes_the_score_when_the_loop_says_what_the_model_wrote(passage, answer):
    turns = ["<think>a</think><search>q</search>", f"<think>b</think><answer>{answer}</answer>"]
    quiet, hostile = (
        score(f"{turns[0]}<information>{text}</information>{turns[1]}", model_text=turns) for text in ("", passage)
    )
    assert hostile == quiet
    assert quiet["acc"] == float(answer == "Paris")


@settings(max_examples=300, deadline=None)
@given(ANY_TEXT, st.sampled_from([("<information>", "</information>"), ("<tool_response>", "</tool_response>")]))
def test_no_passage_scores_or_hides_the_final_answer_without_the_loops_help(passage, tags):
    observation = passage.join(tags)
    assert score(f"<search>q</search>{observation}")["acc"] == 0.0
    assert score(f"<search>q</search>{observation}<answer>Paris</answer>")["acc"] == 1.0
    assert score(f"<search>q</search>{observation}<answer>London</answer>")["acc"] == 0.0


@pytest.fixture(scope="module")
def work():
    with counted("verl_trgrpo") as work:
        yield work


_RANDOM = random.Random(0)
PIECES = {
    "letters": "".join(_RANDOM.choices("abc <>/.,'\n", k=300)),
    "opening answer": "<answer>",
    "opening search": "<search>",
    "unclosed searches": "<search>Rome </answer",
    "crossed tags": "<search></answer>",
    "closing answer": "</answer>",
    "opening information": "<information>",
    "observations": "<information>x</information>",
    "turn markers": "<|im_start|>assistant\n",
    "half tags": "</answer",
    "spaces": " ",
    "articles": "the ",
    "dotted capital i": "İ",
    "surrogates": "\ud800",
}


@pytest.mark.parametrize(
    "frame", ["{}", "<think>x</think><answer>{}</answer>", "<information>{}</information><answer>"]
)
@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES.keys())
def test_work_is_linear(work, piece, frame):
    golds = [f"alias number {number}" for number in range(50)]

    def read(size):
        response = frame.format(repeated(piece, 5 * size))
        return work.of(score, response, golds) + work.of(read_action, response)

    assert not grows(read)
