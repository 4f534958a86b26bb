"""Word problems are right, different and two steps long, and the rows can be scored by the mathematics reward."""

import re

import pyarrow.parquet as pq
import pytest

from examples import word_problems
from verl_trgrpo.tasks import compute_score


@pytest.fixture(scope="module")
def problems():
    return word_problems.split_problems()


def test_test_train_and_warm_start_problems_are_different_ones(problems):
    assert {name: len(found) for name, found in problems.items()} == {
        "test": word_problems.TEST, "warm_start": word_problems.WARM_START, "train": word_problems.TRAIN,
    }  # fmt: skip
    questions = [problem.question for found in problems.values() for problem in found]
    assert len({*questions}) == len(questions)


def test_the_steps_lead_to_the_answer(problems):
    for problem in problems["test"]:
        first, second = problem.steps
        assert eval(first.expression) == pytest.approx(first.value)
        assert eval(second.expression) == pytest.approx(second.value)
        assert second.value == problem.answer
        assert str(first.value) in second.expression.split()
        assert max(map(float, re.findall(r"\d+", problem.question))) <= word_problems.LARGEST


def test_rows_are_scored_by_the_reward(problems, tmp_path, monkeypatch):
    monkeypatch.setattr(word_problems, "split_problems", lambda: problems)
    assert word_problems.build_dataset(tmp_path) and not word_problems.build_dataset(tmp_path)
    for row in pq.read_table(tmp_path / "test.parquet").to_pylist()[:50]:
        truth = row["reward_model"]["ground_truth"]
        assert compute_score(row["data_source"], rf"So it is \boxed{{{truth}}}.", truth)["acc"] == 1.0
        assert compute_score(row["data_source"], rf"So it is \boxed{{{int(truth) + 1}}}.", truth)["acc"] == 0.0
