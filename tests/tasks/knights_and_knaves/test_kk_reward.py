"""The scores of Knights-and-Knaves responses: levels, form, ground truth, and answers of every kind."""

import doctest

import pytest

from tests.tasks.knights_and_knaves.kk_answer_cases import (
    PROSE,
    REST,
    RIGHT,
    RIGHT_ANSWER,
    TRUTH,
    WRONG,
    respond,
    write_truth,
)
from tests.tasks.knights_and_knaves.kk_attack_cases import UNPARSED
from verl_trgrpo.tasks import GroundTruthError, Score
from verl_trgrpo.tasks.knights_and_knaves import reward
from verl_trgrpo.tasks.knights_and_knaves.reward import extract_answer, score_knights_and_knaves


def score(answer: str, truth: str = TRUTH) -> float:
    return score_knights_and_knaves(respond(answer), truth).score


@pytest.mark.parametrize("answer", RIGHT)
def test_right_answers_in_the_accepted_forms_score_full_marks(answer):
    assert score_knights_and_knaves(respond(answer), TRUTH) == Score(3.0, acc=1.0, format_ok=1.0)


@pytest.mark.parametrize("answer", WRONG)
def test_definite_wrong_answers(answer):
    assert score_knights_and_knaves(respond(answer.replace("...", REST)), TRUTH) == Score(-0.5, acc=0.0, format_ok=1.0)


@pytest.mark.parametrize("answer", PROSE)
def test_right_answers_in_other_words_are_not_read(answer):
    assert score(answer.replace("...", REST)) == -1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(answer.replace("...", REST), id=f"{topic}-{position}")
        for topic, answers in UNPARSED.items()
        for position, answer in enumerate(answers)
    ],
)
def test_answers_that_settle_nothing(answer):
    assert score_knights_and_knaves(respond(answer), TRUTH) == Score(-1.0, acc=0.0, format_ok=1.0)


@pytest.mark.parametrize(
    "response",
    [
        f"<think>\nreasoning\n</think>\n<answer>{TRUTH}</answer>",
        f"reasoning</think><answer>{TRUTH}</answer>",  # the chat template wrote <think>
        f"\n <think></think> <answer>\n{TRUTH}\n</answer>\n",
        f"<think>a</think><answer>{TRUTH}</answer><|im_end|>",
        f"<think>a</think><answer>{TRUTH}</answer> <|endoftext|></s>\n<|im_end|>",
        f"<think>a < b > c, </Think> <Answer> assistant: <|im_start|>assistant</think><answer>{TRUTH}</answer>",
    ],
)
def test_responses_of_the_right_form(response):
    assert score_knights_and_knaves(response, TRUTH) == Score(3.0, acc=1.0, format_ok=1.0)


@pytest.mark.parametrize(
    "response",
    [
        "",
        TRUTH,
        f"<answer>{TRUTH}</answer>",
        f"<think>{TRUTH}</think>",
        f"<think>a</think>{TRUTH}",
        f"<think>a<answer>{TRUTH}</answer></think>",
        f"<answer>{TRUTH}</answer><think>a</think>",
        f"<answer>{TRUTH}</answer></think>",
        f"<think>a</think><answer>{TRUTH}",
        f"<think>a</think></answer>{TRUTH}<answer>",
        f"<think>a<answer>{TRUTH}</answer>",
        f"<think><think>a</think><answer>{TRUTH}</answer>",
        f"a<think>b</think><answer>{TRUTH}</answer>",
        f"Assistant: <think>b</think><answer>{TRUTH}</answer>",
        f"<think>a</think></think><answer>{TRUTH}</answer>",
        f"<think>a</think> So: <answer>{TRUTH}</answer>",
        f"<think>a</think><answer>{TRUTH}</answer> Hope this helps!",
        f"<think>a</think><answer>{TRUTH}</answer><|im_end|>user",
        f"<think>a</think><answer>{TRUTH}</answer><|im_<|im_end|>end|>",
        f"<think>a</think><answer><answer>{TRUTH}</answer></answer>",
        f"<think>a</think><answer>wrong</answer><answer>{TRUTH}</answer>",
        f"<think>a</think><answer>{TRUTH}<think></answer>",
        f"<think>put it into <answer> tags</think><answer>{TRUTH}</answer>",
        f"<think>a</think><answer>no</answer><|im_end|>\n<|im_start|>assistant\n<think>b</think><answer>{TRUTH}</answer>",
        f"<THINK>a</THINK><ANSWER>{TRUTH}</ANSWER>",
        f"＜think＞a＜/think＞＜answer＞{TRUTH}＜/answer＞",
        f"<think>a</think><!-- --><answer>{TRUTH}</answer>",
        "<think>" * 5000 + TRUTH,
    ],
)
def test_responses_of_the_wrong_form(response):
    assert score_knights_and_knaves(response, TRUTH) == Score(-3.0, acc=0.0, format_ok=0.0)
    assert extract_answer(response) is None


def test_the_worked_example_in_the_documentation():
    outcome = doctest.testmod(reward)
    assert outcome.attempted == 5
    assert outcome.failed == 0


def test_the_ground_truth_may_come_in_a_mapping():
    row = {"solution_text_format": TRUTH, "statements": "(('lying', 1),)"}
    assert score_knights_and_knaves(respond(RIGHT_ANSWER), row).score == 3.0


@pytest.mark.parametrize(
    ("truth", "reason"),
    [
        ("", "line 1"),
        ("Zoey is a knight", "line 1"),
        ("(1) Zoey is a knight\n(3) Ava is a knave", "line 2"),
        ("(1) Zoey is a knight\n\n(2) Ava is a knave", "line 2"),
        ("(1) Zoey is a liar", "'(1) Zoey is a liar'"),
        ("(1) Zoey is a knight or a knave", "line 1"),
        ("(1) Zoey is a knight\n(2) zoey is a knave", "line 2 is '(2) zoey is a knave'"),
        ("(1) And Zoey is a knight", "line 1"),
        ("(1) 2. Zoey is a knight", "line 1"),
        ("(1) + Zoey is a knight", "line 1"),
        ("(1) Zoey is a knight\n(2) Ｚoey is a knave", "line 2"),
        ("(1) ** is a knight", "line 1"),
        (None, "None"),
        (float("nan"), "nan"),
        (["(1) Zoey is a knight"], "solution_text_format"),
        ({"statements": "()"}, "solution_text_format"),
        ({"solution_text_format": 3}, "solution_text_format"),
    ],
)
def test_malformed_ground_truth_is_an_error(truth, reason):
    with pytest.raises(GroundTruthError, match="ground truth") as error:
        score_knights_and_knaves(respond(RIGHT_ANSWER), truth)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("names", "roles", "answer", "expected"),
    [
        ("Ann,Anna", "kv", "Ann is a knight\nAnna is a knave", 3),
        ("Ann,Anna", "kv", "Anna is a knave", -1),
        ("Jo,Jordan", "vv", "Jordan is a knave", -1),
        ("Li,Li Wei", "kv", "Li is a knight and Li  Wei is a knave", 3),
        ("Li,Ava", "kv", "Li Wei is a knight\nAva is a knave", -1),
        ("Marie,Ava", "kv", "Anne-Marie is a knight\nAva is a knave", -1),
        ("अनि,Ava", "kv", "अनिल is a knight\nAva is a knave", -1),
        ("Not,Ava", "kk", "Ava is not a knight\nNot is a knight", -1),
        ("Knight,Ava", "vk", "Knight is a knave and Ava is a Knight", 3),
        ("And,Ava", "vk", "Ava is a knight and And is a knave", 3),
        ("And,Ava", "vk", "And is a knave, Ava is a knight", 3),
        ("Tom and Jerry,Ava", "vk", "Tom and Jerry is a knave and Ava is a knight", 3),
        ("A,B", "kv", "A is a knight, B is a knave", 3),
        ("A,B", "kv", "A knight is B. A knave is A.", -1),
        ("Dr. No,1", "kv", "(1) Dr. No is a knight. (2) 1 is a knave.", 3),
        ("José,Zoë", "kv", "JOSÉ is a knight\nzoë is a knave", 3),
        ("José,Zoë", "kv", "Jose\u0301 is a knight\nZoe\u0308: knave", 3),
        ("O'Brien,Ava", "kv", "O’Brien is a knight\nAva is a knave", 3),
        ("Anne-Marie,Ava", "kv", "Anne–Marie is a knight\nAva is a knave", 3),
        ("And,Ava", "vk", "And: knave\nAva: knight", 3),
        ("1,2", "kv", "1 is a knight\n2 is a knave", 3),
        ("Person_1,Ava", "kv", "Person_1 is a knight\nAva is a knave", 3),
        ("Knight,Knave", "vk", "Knight - knave - Knave - knight", 3),
        ("Knight,Knave", "vk", "Knight: Knave", -1),
        ("José,Zoë", "kv", "Jose is a knight\nZoe is a knave", -1),
        ("李雷,韩梅梅", "kv", "(1) 李雷 is a knight\n(2) 韩梅梅 is a knave", 3),
        ("O'Brien,Anne-Marie", "kv", "O'Brien is a knight and Anne-Marie is a knave", 3),
    ],
)
def test_names(names, roles, answer, expected):
    assert score(answer, write_truth(names.split(","), roles)) == expected
