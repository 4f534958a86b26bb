"""Verdicts worth a look: what is drawn of a validation, of which kind, and from which row."""

import pytest

from tests.compare.files import generation, write_generations
from verl_trgrpo.compare.page import read_samples
from verl_trgrpo.compare.verdicts import is_near, worth_a_look

PROMPT = "Factor $t^2-49$. Put your final answer within \\boxed{}."


def line(answer, score, truth="(t-7)(t+7)", prompt=PROMPT):
    return generation(prompt, rf"So it is \boxed{{{answer}}}.", score) | {"gts": truth}


def found(tmp_path, rows, most=50):
    write_generations(tmp_path, {3: rows})
    return [(verdict.kind, verdict.row, verdict.answer) for verdict in worth_a_look(tmp_path / "3.jsonl", most)]


def test_a_formula_of_the_prompt_that_was_paid(tmp_path):
    rows = [line("(t-7)(t+7)", 1.0), line("t^2-49", 1.0), line("-49+t^2", 1.0), line("t^2-49", 1.0)]
    assert found(tmp_path, rows) == [
        ("paid, but in the prompt", 2, "t^2-49"),
        ("paid, but in the prompt", 3, "-49+t^2"),
    ]


def test_an_answer_that_was_refused_and_is_near(tmp_path):
    rows = [line("(t+7)(t-7)^1", 0.0), line("t", 0.0), line("u^3", 0.0), line("(t-7)(t+7)", 1.0)]
    assert found(tmp_path, rows) == [("refused, but near", 1, "(t+7)(t-7)^1")]


def test_the_refused_answer_of_most_responses_to_a_prompt(tmp_path):
    rows = [
        line("8", 0.0, "5"),
        line("9", 0.0, "5"),
        line("9", 0.0, "5"),
        line("9", 0.0, "6", "Another"),
        line("5", 1.0, "5"),
    ]
    assert found(tmp_path, rows) == [("refused, and most frequent of its prompt", 2, "9")]
    tied = [line("8", 0.0, "5"), line("8", 0.0, "5"), line("9", 0.0, "5"), line("9", 0.0, "5")]
    assert found(tmp_path, tied) == []


def test_what_is_not_worth_a_look(tmp_path):
    rows = [
        line("5", 1.0, "5", "Is it 5?"),
        generation("p", "no answer", 0.0),
        line("7", None, "7"),
        line("7", 0.0, "2"),
    ]
    assert found(tmp_path, rows) == [], "a single digit of the prompt, no answer, not scored, far"


def test_at_most_fifty_of_all_kinds(tmp_path):
    near = [line(f"x={k}", 0.0, str(k), f"Question {k}") for k in range(10, 90)]
    paid = [line(f"x+{k}", 1.0, "y", f"What is $x+{k}$?") for k in range(10, 30)]
    verdicts = found(tmp_path, near + paid)
    kinds = [kind for kind, _, _ in verdicts]
    assert (
        len(verdicts) == 50
        and kinds.count("paid, but in the prompt") == 20
        and verdicts == found(tmp_path, near + paid)
    )


@pytest.mark.parametrize(
    ("truth", "answer", "near"),
    [
        ("\\frac{1}{3}", "0.333", True), ("100", "101", True), ("100", "102", False), ("5", "5 \\text{ zebras}", True),
        ("\\{1,2\\}", "(1,2)", True), ("1,2", "1,2,3", True), ("x+1", "x-1", True), ("x^2", "y^2", False), ("5", "\\pi", False),
        ("+", "-", False), ("0", "0.001", False),
    ],
)  # fmt: skip
def test_near_is_all_of_the_other_or_a_close_number(truth, answer, near):
    assert is_near(truth, answer) == near


def test_a_run_has_those_of_its_last_validation(tmp_path):
    write_generations(tmp_path, {0: [line("t^2-49", 1.0)], 9: [line("(t-7)(t+7)", 1.0), line("(t+7)(t-7)^1", 0.0)]})
    [verdict] = read_samples(tmp_path).verdicts
    assert (verdict.kind, verdict.row, verdict.response.truth) == ("refused, but near", 2, "(t-7)(t+7)")
