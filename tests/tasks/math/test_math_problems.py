"""Problems from rows: which columns, what is stripped, what is malformed, what repeats."""

import pytest

from tests.tasks.math.deepscaler_files import DEEPSCALER_INSTRUCTION, prepared
from verl_trgrpo.tasks.math.problems import Problem, read_problem
from verl_trgrpo.tasks.math.prompts import INSTRUCTION, build_prompt
from verl_trgrpo.tasks.math.repetitions import CONTRADICTED, REPEATED, find_repetitions

KNOWN = (INSTRUCTION, "Be brief.")


def test_the_default_instruction_is_deepscalers():
    assert INSTRUCTION == DEEPSCALER_INSTRUCTION
    assert build_prompt("Why?") == [{"role": "user", "content": f"Why? {DEEPSCALER_INSTRUCTION}"}]


def test_an_instruction_can_be_another_one_a_system_message_or_none():
    assert build_prompt("Why?", "Be brief.") == [{"role": "user", "content": "Why? Be brief."}]
    assert build_prompt("Why?", "Be brief.", "system") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
    ]
    assert build_prompt("Why?", "none") == [{"role": "user", "content": "Why?"}]
    with pytest.raises(ValueError, match="'assistant'; choose one of user, system"):
        build_prompt("Why?", role="assistant")


def test_columns_of_the_known_data_sets():
    assert read_problem({"problem": " Why?\n", "answer": "1", "level": 3, "subject": "Logic"}) == Problem(
        "Why?", ["1"], "3", "Logic"
    )
    assert read_problem({"question": "Why?", "final_answer": ["1"], "subfield": "Logic"}) == Problem(
        "Why?", ["1"], None, "Logic"
    )
    assert read_problem({"problem": "Why?", "answer": 1.0, "difficulty": 2.5, "type": " "}) == Problem(
        "Why?", ["1"], "2.5", None
    )


def test_a_prepared_row_is_the_problem_without_its_instruction():
    raw = {"problem": "Why?  Because", "answer": [1.0]}
    assert read_problem(prepared(raw), KNOWN) == Problem("Why?  Because", ["1"])
    for prompt in (
        build_prompt("Why?", "Be brief."),
        build_prompt("Why?", "Be brief.", "system"),
        build_prompt("Why?"),
    ):
        row = {"prompt": prompt, "reward_model": {"ground_truth": "1"}, "extra_info": {"level": "4", "subject": None}}
        assert read_problem(row, KNOWN) == Problem("Why?", ["1"], "4", None)


def test_nothing_is_stripped_from_raw_problems_and_from_words_that_only_look_alike():
    assert read_problem({"problem": "Say: Be brief.", "answer": "1"}, KNOWN).text == "Say: Be brief."
    row = {"prompt": [{"role": "user", "content": "Maybe brief."}], "reward_model": {"ground_truth": "1"}}
    assert read_problem(row, ("be brief.",)).text == "Maybe brief."


MALFORMED = {
    "no problem": ({"answer": "1"}, "the problem is None"),
    "an empty problem": ({"problem": " \n", "answer": "1"}, "the problem is"),
    "a problem of another type": ({"problem": ["Why?"], "answer": "1"}, "the problem is"),
    "half a surrogate pair": ({"problem": "Why \ud800?", "answer": "1"}, "the problem is"),
    "a chat tag": ({"problem": "Why?<|im_end|>", "answer": "1"}, "contains <|im_end|>"),
    "an image alone": ({"problem": "![](https://x.org/a_1.png)", "answer": "1"}, "no words beside images"),
    "a link to an image alone": ({"problem": "[AIME 1.gif](https://x.org/w/A.gif)", "answer": "1"}, "no words"),
    "a picture in LaTeX alone": (
        {"problem": "\\begin{center}\n\\includegraphics[width=3cm]{a.jpg}\n\\end{center}", "answer": "1"},
        "no words",
    ),
    "an image tag alone": ({"problem": "<image_1> ?", "answer": "1"}, "no words"),
    "no answer": ({"problem": "Why?", "solution": "1"}, "no column answer or final_answer; found problem, solution"),
    "an empty answer": ({"problem": "Why?", "answer": ""}, "the row has no answer"),
    "no user": (
        {"prompt": [{"role": "assistant", "content": "Why?"}], "reward_model": {"ground_truth": "1"}},
        "one message of the user",
    ),
    "an unknown system message": (
        {"prompt": build_prompt("Why?", "Rhyme.", "system"), "reward_model": {"ground_truth": "1"}},
        "one message of the user",
    ),
    "a prompt that is a text": ({"prompt": "Why?", "reward_model": {"ground_truth": "1"}}, "one message of the user"),
    "no reward model": ({"prompt": build_prompt("Why?")}, "no ground_truth in reward_model"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_row_is_refused_with_its_reason(name):
    row, reason = MALFORMED[name]
    with pytest.raises(ValueError) as caught:
        read_problem(row, KNOWN)
    assert reason in str(caught.value)


def test_pictures_beside_words_and_in_asymptote_are_fine():
    for text in (
        "Find $x$. ![](https://x.org/a.png)",
        "[asy] draw((0,0)--(1,1)); [/asy]",
        "\\includegraphics{a.jpg} $x$?",
    ):
        assert read_problem({"problem": text, "answer": "1"}).text == text


def test_the_first_of_equal_problems_stays_and_contradicting_ones_all_go():
    problems = [
        Problem("What is  1+1?", ["2"]),
        Problem("What is $x$?", ["1"]),
        Problem("What is\n1+1? ", ["2.0"]),
        Problem("What is $X$?", ["5"]),
        Problem("What is $x$?", ["1"]),
        Problem("What is $x$?", ["3"]),
    ]
    assert find_repetitions(problems) == {2: REPEATED, 1: CONTRADICTED, 4: CONTRADICTED, 5: CONTRADICTED}
    assert find_repetitions([]) == {}
