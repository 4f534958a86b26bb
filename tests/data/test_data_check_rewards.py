"""`check_files`: which rewards exist for the rows, and whether each gives its ground truth full marks."""

import pytest

from tests.data.checked_files import results, row, truth, write
from verl_trgrpo.tasks import Score
from verl_trgrpo.tasks.registry import Task, _tasks, register_reward


@pytest.fixture
def families():
    before = dict(_tasks)
    yield
    _tasks.clear()
    _tasks.update(before)


def exact(response, ground_truth, extra_info):
    return Score(1.0, acc=float(response == f"ANSWER={ground_truth}"))


def test_a_family_says_how_a_right_response_looks(tmp_path, families):
    register_reward("unusual")(exact)
    data = write(tmp_path / "data.parquet", [row(0, data_source="unusual")])
    assert results(data)["reward of gold"].status == "error", "none of the usual forms is right here"
    _tasks.pop("unusual")
    register_reward("unusual", right_response=lambda gold: f"ANSWER={gold}")(exact)
    assert results(data)["reward of gold"].status == "ok"


@pytest.mark.parametrize("form", ["<think></think><answer>{}</answer>", r"\boxed{{{}}}", "<answer>{}</answer>"])
def test_the_usual_forms_of_answers_are_tried(tmp_path, families, form):
    register_reward("usual")(
        lambda response, gold, info: Score(1.0, acc=float(response == form.format(gold["target"][1])))
    )
    rows = [row(i, data_source="usual") | truth({"target": ["wrong", f"gold {i}"]}) for i in range(3)]
    assert results(write(tmp_path / "data.parquet", rows))["reward of gold"].status == "ok"


@pytest.mark.parametrize(
    ("verdict", "status", "example"),
    [
        ({"acc": 0.0}, "error", "gets acc 0.0"),
        ({"acc": 1.0, "gold_unparseable": 1.0}, "error", "cannot read the ground truth"),
        ({"acc": 0.0, "timed_out": 1.0}, "warning", "timed out"),
    ],
)
def test_verdicts_other_than_right_are_findings(tmp_path, families, verdict, status, example):
    register_reward("moody")(lambda response, gold, info: Score(0.0, **verdict))
    found = results(write(tmp_path / "data.parquet", [row(0, data_source="moody")]))["reward of gold"]
    assert found.status == status
    assert example in found.examples[0]


def test_what_was_not_looked_at_is_said(tmp_path, families):
    _tasks.clear()
    register_reward("here")(exact)
    _tasks["broken"] = Task("no_such_module_at_all:score")
    data = write(tmp_path / "data.parquet", [row(0, data_source="broken"), row(1, data_source="unknown")])
    found = results(data)["reward of gold"]
    assert found.status == "not checked"
    assert "the reward of 'broken' cannot be imported" in found.note
    assert "no reward for 'unknown'" in found.note
    assert results(data, no_rewards=True)["reward of gold"].note == "--no-rewards"
