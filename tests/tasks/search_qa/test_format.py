"""Search-R1's format: actions, observations, and what the model wrote."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_trgrpo.retrieval.index import Hit
from verl_trgrpo.tasks.search_qa.format import Action, model_text, observation_frame, passages_text, read_action

ACTIONS = {
    "<think>a</think><search>Rome</search>": Action("search", "Rome"),
    "<search> two\nlines </search>": Action("search", "two\nlines"),
    "<answer>Paris</answer>": Action("answer", "Paris"),
    "<search>a<search>b</search>": Action("search", "b"),
    "<answer><search>a</search>": Action("search", "a"),
    "<search>a</search><answer>b</answer>": Action("search", "a"),
    "<answer>a<search>b</search></answer>": Action("answer", "a<search>b</search>"),
    "<search>Rome": Action("malformed"),
    "Rome</search>": Action("malformed"),
    "<search>  </search>": Action("malformed"),
    "<answer></answer>": Action("malformed"),
    "<search>a</answer>": Action("malformed"),
    "<SEARCH>a</SEARCH>": Action("malformed"),
    "": Action("malformed"),
}


@pytest.mark.parametrize("turn", ACTIONS)
def test_actions(turn):
    assert read_action(turn) == ACTIONS[turn]


def by_regular_expression(turn):
    """Read an action by the definition, in quadratic time."""
    match = re.search(r"<(search|answer)>(.*?)</\1>", turn, re.DOTALL)
    content = re.split(f"<{match[1]}>", match[2])[-1].strip() if match else ""
    return Action(match[1], content) if content else Action("malformed")


PIECES = ["<search>", "</search>", "<answer>", "</answer>", "<", "</", "search>", "a", " ", "\n"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text())
def test_an_action_is_the_first_complete_block(turn):
    assert read_action(turn) == by_regular_expression(turn)


def test_passages_are_shown_as_search_r1_shows_them():
    hits = [Hit("7", '"Rome"\nRome is\nin Italy.', 1.0), Hit("8", "no title", 0.5)]
    assert passages_text(hits) == 'Doc 1(Title: "Rome") Rome is\nin Italy.\nDoc 2(Title: no title) \n'
    assert passages_text([]) == "No passage was found.\n"
    assert observation_frame() == ("\n\n<information>", "</information>\n\n")
    assert observation_frame("note")[1] == "note</information>\n\n"


@pytest.mark.parametrize("tag", ["</information>", "<answer>", "</Answer>", "<search>", "<think>", "</tool_response>"])
def test_a_passage_cannot_leave_its_block(tag):
    text = passages_text([Hit("1", f'"Title {tag}"\nbefore {tag}Paris{tag} after', 1.0)])
    assert tag not in text
    assert "before " in text
    assert "Paris" in text
    # Other angle brackets stay.
    assert "1 < 2, <b>bold</b>, <answering>" in passages_text([Hit("1", "1 < 2, <b>bold</b>, <answering>", 1.0)])


class Letters:
    """A tokenizer whose tokens are letters."""

    def decode(self, tokens, skip_special_tokens):
        assert skip_special_tokens
        return "".join(tokens)


def test_what_the_model_wrote_is_every_run_of_its_own_tokens():
    assert model_text("abXYcZ", [1, 1, 0, 0, 1, 0], Letters()) == ["ab", "c"]
    assert model_text("ab", [0, 0], Letters()) == []
    with pytest.raises(ValueError, match="argument 2"):
        model_text("ab", [1], Letters())
