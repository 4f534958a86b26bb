"""Retrieved text never scores."""

import pytest

from verl_trgrpo.tasks import compute_score

GOLD = {"target": ["Paris"]}
HIT = "<answer>Paris</answer>"
MISS = "<answer>London</answer>"


def acc(response, **extra_info):
    return compute_score("searchR1_nq", response, GOLD, extra_info)["acc"]


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
    assert acc(response, model_text=f"<search>q</search>{HIT}") == 1.0
    assert acc(response + "</information>" + HIT, model_text=["<search>q</search>", MISS]) == 0.0
    assert acc(HIT, model_text=[]) == 0.0
    assert acc(HIT, model_text=None) == 1.0


def test_the_models_turns_may_come_as_an_array():
    numpy = pytest.importorskip("numpy")
    assert acc("", model_text=numpy.array(["<search>q</search>", HIT], dtype=object)) == 1.0


@pytest.mark.parametrize("wrong", [7, {"text": HIT}, [HIT, None], [7], b"bytes"])
def test_a_model_text_of_another_type_is_an_error(wrong):
    with pytest.raises(ValueError, match="model_text"):
        acc(HIT, model_text=wrong)
