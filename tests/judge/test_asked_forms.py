"""The mathematics reward reads the form that the prompt asks for."""

import pytest

from tests.judge.test_answer_form import DAPO
from verl_trgrpo.judge.answer_form import ANSWER_FORMS, state_answer
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.registry import find_reward, options_of
from verl_trgrpo.tasks.reward_input import reward_input

BOX = "What is 6 * 7? Let's think step by step and output the final answer within \\boxed{}."
TAGS = "What is 6 * 7? Give the answer inside <answer> and </answer>."
GSM8K = 'What is 6 * 7? Let\'s think step by step and output the final answer after "####".'
PROMPTS = {"box": BOX, "line": DAPO, "tags": TAGS, "hashes": GSM8K}


def acc(source, response, prompt=None, **options):
    return compute_score(source, response, "42", reward_input({}, prompt) if prompt else None, **options)["acc"]


@pytest.mark.parametrize("source", ["math", "math_dapo", "minerva"])
@pytest.mark.parametrize("asked", PROMPTS)
def test_the_answer_is_read_in_the_form_that_the_prompt_asks_for(source, asked):
    right = {form for form in ANSWER_FORMS if acc(source, f"So.\n\n{state_answer('42', form)}", PROMPTS[asked])}
    # Behind "Answer:" or "####" a box counts, too.
    assert right == {asked} | ({"box"} if asked in ("line", "hashes") else set())


def test_dapos_prompt_is_scored_as_verl_scores_it():
    from verl.utils.reward_score.math_dapo import compute_score as verl_score

    for response in ("6 * 7 is 42.\n\nAnswer: 42", "Answer: 41", "It is 42."):
        assert acc("math_dapo", response, DAPO) == float(verl_score(response, "42")["acc"]), response


def test_without_a_prompt_the_data_source_decides():
    assert acc("math", r"\boxed{42}") == acc("math_dapo", "Answer: 42") == 1.0
    assert (
        acc("math", "Answer: 42")
        == acc("math", "<answer>42</answer>")
        == acc("math_dapo", "<answer>42</answer>")
        == 0.0
    )
    assert acc("math", r"\boxed{42}", "What is 6 * 7?") == acc("math_dapo", "Answer: 42", "What is 6 * 7?") == 1.0


def test_the_option_wins_over_the_prompt():
    assert options_of(find_reward("math")) == options_of(find_reward("math_dapo")) >= {"answer_form", "thinking"}
    assert acc("math_dapo", "<answer>42</answer>", DAPO, answer_form="tags") == 1.0
    assert acc("math_dapo", "Answer: 42", DAPO, answer_form="tags") == 0.0
    with pytest.raises(ValueError, match=r"answer_form='boxed'.*box, line, tags, hashes"):
        acc("math", "", answer_form="boxed")


@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_a_response_cut_off_in_its_reasoning_is_paid_nothing(form):
    response = state_answer("42", form)
    opened = reward_input({}, PROMPTS[form], thinking_opened=True)
    verdict = compute_score("math", response, "42", opened)
    assert (verdict["score"], verdict["format_ok"]) == (0.0, 0.0)
    assert compute_score("math", f"</think>\n{response}", "42", opened)["score"] == 1.0
    assert compute_score("math", response, "42", opened, thinking=False)["score"] == 1.0
    assert compute_score("math", response, "42", reward_input({}, PROMPTS[form]), thinking=True)["score"] == 0.0


def test_rows_of_all_tasks_have_the_same_keys():
    rows = {
        "math": "42",
        "kk": "(1) Zoey is a knight",
        "searchR1_nq": {"target": ["Rome"]},
        "reasoning_gym/gsm_symbolic": '{"task": "gsm_symbolic", "config": {}, "entry": {"answer": "42"}}',
    }
    found = [compute_score(source, "", truth, reward_input({}, DAPO)).keys() for source, truth in rows.items()]
    assert all(keys == found[0] for keys in found)
