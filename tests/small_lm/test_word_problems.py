"""Problems are right, different and two steps long; demonstrations end in what they calculate."""

import random
import re

import pytest

from verl_trgrpo.small_lm.demonstrations import demonstration
from verl_trgrpo.small_lm.word_problems import LARGEST, calculate, two_step_problems
from verl_trgrpo.tasks import compute_score


@pytest.fixture(scope="module")
def problems():
    return list(two_step_problems(200))


def test_the_steps_lead_to_the_answer(problems):
    for problem in problems:
        first, second = problem.steps
        assert eval(first.expression) == pytest.approx(first.value)
        assert eval(second.expression) == pytest.approx(second.value)
        assert second.value == problem.answer
        assert str(first.value) in second.expression.split()
        assert max(map(float, re.findall(r"\d+", problem.question))) <= LARGEST


def test_problems_are_different(problems):
    assert len({problem.question for problem in problems}) == len(problems) == 200


@pytest.mark.parametrize(
    "expression", ["9 - 3", "6 + 3 + 7", "79 / 123 * 984", "31 - 4 - 8", "2 + 3 * 4 - 10 / 5", "7"]
)
def test_calculate_agrees_with_python(expression):
    assert calculate(expression) == pytest.approx(eval(expression))


def score(text, problem):
    return compute_score("math", text, str(problem.answer))["acc"]


def test_careful_demonstrations_are_right_and_worded_in_many_ways(problems):
    rng = random.Random(0)
    texts = [demonstration(problem, rng, careless=0) for problem in problems]
    assert all(score(text, problem) == 1 for text, problem in zip(texts, problems, strict=True))
    shapes = {re.sub(r"\d+", "N", demonstration(problems[0], rng, careless=0)) for _ in range(200)}
    assert len(shapes) > 100


def test_careless_ones_are_wrong_about_as_often_as_asked(problems):
    rng = random.Random(0)
    right = sum(score(demonstration(problem, rng, careless=0.35), problem) for problem in problems) / len(problems)
    assert abs(right - 0.65**2) < 0.1
    # Two slips can cancel each other.
    assert sum(score(demonstration(problem, rng, careless=1), problem) for problem in problems) / len(problems) < 0.2
