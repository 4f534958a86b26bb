"""The scores of Knights-and-Knaves responses: levels, form, ground truth, and answers of every kind."""

import doctest
import unicodedata

import pytest

from tests.tasks.knights_and_knaves.reward.kk_answer_cases import REST, RIGHT, RIGHT_ANSWER, TRUTH, WRONG
from tests.tasks.knights_and_knaves.reward.kk_attack_cases import UNPARSED
from tests.tasks.knights_and_knaves.reward.kk_responses import respond, write_truth
from verl_trgrpo.tasks import Score
from verl_trgrpo.tasks.knights_and_knaves.reward import scorer
from verl_trgrpo.tasks.knights_and_knaves.reward.scorer import extract_answer, score_knights_and_knaves
from verl_trgrpo.tasks.knights_and_knaves.reward.text import MAX_ANSWER_CHARS

MARK = "\u0301"  # combining


def score(answer: str, truth: str = TRUTH) -> float:
    return score_knights_and_knaves(respond(answer), truth).score


def cases(table: dict[str, list[str]]) -> list:
    return [
        pytest.param(answer.replace("...", REST), id=f"{topic}-{position}")
        for topic, answers in table.items()
        for position, answer in enumerate(answers)
    ]


@pytest.mark.parametrize("answer", cases(RIGHT))
def test_right_answers_in_any_wording_score_full_marks(answer):
    assert score_knights_and_knaves(respond(answer), TRUTH) == Score(3.0, acc=1.0, format_ok=1.0)


@pytest.mark.parametrize("answer", cases(WRONG))
def test_definite_wrong_answers(answer):
    assert score_knights_and_knaves(respond(answer), TRUTH) == Score(-0.5, acc=0.0, format_ok=1.0)


@pytest.mark.parametrize("answer", cases(UNPARSED))
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
    outcome = doctest.testmod(scorer)
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
        ("(1) Zoey is a knight\n(2) Zoey is a knave", "line 2: the name 'Zoey' is unreadable or used twice"),
        ("(1) José is a knight\n(2) Jose\u0301 is a knave", "used twice"),
        ("(1) @0 is a knight", "unreadable"),
        (f"(1) Zoe{9 * MARK} is a knight", "unreadable"),
        (None, "None"),
        ({"statements": "()"}, "solution_text_format"),
        ({"solution_text_format": 3}, "solution_text_format"),
    ],
)
def test_malformed_ground_truth_is_an_error(truth, reason):
    with pytest.raises(ValueError, match="ground truth") as error:
        score_knights_and_knaves(respond(RIGHT_ANSWER), truth)
    assert reason in str(error.value)


def test_all_problems_of_a_ground_truth_are_reported_at_once():
    with pytest.raises(ValueError, match=r"line 1.*line 2.*line 3"):
        score_knights_and_knaves("", "Zoey\nAva\nOliver")


@pytest.mark.parametrize("response", [None, b"<think></think><answer></answer>", 3])
def test_a_response_must_be_a_string(response):
    with pytest.raises(TypeError, match="not str"):
        score_knights_and_knaves(response, TRUTH)


@pytest.mark.parametrize(
    ("names", "roles", "answer", "expected"),
    [
        ("Ann,Anna", "kv", "Ann is a knight\nAnna is a knave", 3),
        ("Ann,Anna", "kv", "Anna is a knave", -1),
        ("Jo,Jordan", "vv", "Jordan is a knave", -1),
        ("Li,Li Wei", "kv", "Knights: Li. Knaves: Li  Wei.", 3),
        ("Li,Ava", "kv", "Li Wei is a knight\nAva is a knave", -1),
        ("Marie,Ava", "kv", "Anne-Marie is a knight\nAva is a knave", -1),
        ("Brien,Ava", "kv", "O'Brien is a knight\nAva is a knave", -1),
        ("अनि,Ava", "kv", "अनिल is a knight\nAva is a knave", -1),
        ("Will,Ava", "kk", "Ava will be a knight\nWill is a knight", -1),
        ("Will,Grace", "kv", "Will is a knight and Grace is a knave.", 3),
        ("Not,Ava", "kk", "Ava is not a knight\nNot is a knight", -1),
        ("Ava,Rest,Max", "kvv", "Ava is a knight, the rest are knaves.", 3),
        ("Knight,Ava", "vk", "Knight is a knave and Ava is a Knight", 3),
        ("Knight,Knave", "vk", "Knight: Knave\nKnave: Knight", -1),
        ("Final,Ava", "kv", "The final answer: Final is a knight and Ava is a knave", 3),
        ("Solution,Ava", "kv", "Ava is a knave, and the solution is a knight", -1),
        ("A,B", "kv", "A is a knight, B is a knave", 3),
        ("A,B", "kv", "A knight is B. A knave is A.", -1),
        ("ann,Ann", "kv", "ann is a knight\nAnn is a knave", 3),
        ("ann,Ann", "kv", "ANN is a knight\nAnn is a knave", -1),
        ("José,Zoë", "kv", "Jose\u0301 is a knight\nZoe\u0308 is a knave", 3),
        ("José,Zoë", "kv", "Jose is a knight\nZoe is a knave", -1),
        ("李雷,韩梅梅", "kv", "（1）李雷 is a knight\n（2）韩梅梅：knave", 3),
        (f"Zoe{8 * MARK},Ava", "kv", f"Zoe{8 * MARK} is a knight and Ava is a knave", 3),
        ("O’Brien,Anne-Marie", "kv", "O'Brien is a knight and Anne‑Marie is a knave", 3),
        ("Zoey,Ava", "kk", "Both are knights.", 3),
        ("Zoey,Ava", "vv", "Neither is a knight.", -1),
        ("Zoey,Ava", "kv", "Zoey is a knight, the other is a knave.", 3),
        ("Zoey,Ava,Max", "kvv", "Zoey is a knight, the other is a knave.", -1),
        ("Zoey,Ava,Max", "kkk", "All three are knights.", 3),
        ("Zoey,Ava,Max", "kkk", "Both are knights.", -1),
        ("Zoey,Ava,Max,Jo", "vkkk", "Zoey is a knave. The others are both knights.", -1),
        ("Zoey,Ava,Max,Jo", "vkkk", "Zoey is a knave. The other three are both knights.", -1),
        ("Zoey,Ava,Max", "vkk", "Zoey is a knave. The other three are both knights.", -1),
        ("Zoey,Ava,Max", "vkk", "Zoey is a knave. The others are both knights.", 3),
        ("Zoey,Ava,Max", "vvv", "Everyone else is a knave.", -1),
        ("Zoey,Ava,Max", "vvv", "Knights: none. The rest are knaves.", 3),
        ("Zoey,Ava,Max", "kkk", "They are both knights.", -1),
        ("Zoey,Ava", "kk", "He says that everyone is a knight, so everyone is a knight.", -1),
        ("Zoey,Ava", "kk", "He says that a knave lies, so everyone is a knight.", -1),
        ("Zoey,Ava,Max", "vkk", "Zoey is a knave.\nHe says that a knight is lying, so everyone else is a knight.", -1),
        ("Zoey,Ava,Max", "kkk", "All two are knights.", -1),
    ],
)
def test_names(names, roles, answer, expected):
    assert score(answer, write_truth(names.split(","), roles)) == expected


@pytest.mark.parametrize("final", ["final", "ﬁnal"])  # the ligature is one character that counts as two
def test_an_answer_is_read_up_to_the_limit_of_its_length_and_not_beyond(final):
    answer = f"The {final} answer is:\n{RIGHT_ANSWER}\n"
    rule = "-" * (MAX_ANSWER_CHARS - len(unicodedata.normalize("NFKC", answer)))
    assert score(answer + rule) == 3
    assert score(answer + rule + "-") == -1
