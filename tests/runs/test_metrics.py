"""Metrics files of several attempts, read while they are written."""

import json
import math

import pytest

from verl_trgrpo.runs.metrics import MEAN_REWARD, MetricsLog, Step


def write(path, records, tail=""):
    path.write_text("".join(json.dumps({"step": step, "data": data}) + "\n" for step, data in records) + tail)


def test_attempts_are_merged_and_the_later_one_wins(tmp_path):
    write(
        tmp_path / "metrics-1.jsonl",
        [(0, {"val-core/a/acc/mean@1": 0.1}), (1, {"critic/score/mean": 1.0}), (2, {"critic/score/mean": 2.0})],
    )
    write(tmp_path / "metrics-2.jsonl", [(1, {"val-core/a/acc/mean@1": 0.3}), (2, {"critic/score/mean": 5.0})])
    write(tmp_path / "metrics-10.jsonl", [(3, {"critic/score/mean": 7.0, "note": "a string is not a metric"})])
    steps = MetricsLog(tmp_path).read()
    assert [step.number for step in steps] == [0, 1, 2, 3]
    assert [step.reward for step in steps] == [None, 1.0, 5.0, 7.0]
    assert [step.accuracy for step in steps] == [0.1, 0.3, None, None]
    assert "note" not in steps[-1].metrics


def test_the_recorded_validation_of_a_checkpoint_counts(tmp_path):
    """The later attempt resumes at step 2, which was validated, and trains step 3 once more."""
    acc, other = "val-core/a/acc/mean@1", "val-core/b/acc/mean@1"
    write(
        tmp_path / "metrics-1.jsonl",
        [(0, {acc: 0.1}), (2, {acc: 0.8, MEAN_REWARD: 1.0}), (3, {acc: 0.9, MEAN_REWARD: 2.0})],
    )
    log = MetricsLog(tmp_path)
    log.read()
    write(tmp_path / "metrics-2.jsonl", [(2, {acc: 0.3, other: 0.5}), (3, {acc: 0.4, MEAN_REWARD: 3.0})])
    for steps in (log.read(), MetricsLog(tmp_path).read()):
        assert [step.metrics.get(acc) for step in steps] == [0.1, 0.8, 0.4]
        assert [step.reward for step in steps] == [None, 1.0, 3.0] and steps[1].metrics[other] == 0.5
    assert MetricsLog(tmp_path, first=2).read()[0].accuracy == pytest.approx(0.4), "mean of 0.3 and 0.5"


def test_a_line_still_being_written_waits_and_nan_is_not_missing(tmp_path):
    path = tmp_path / "metrics-1.jsonl"
    write(path, [(1, {"critic/score/mean": 1.0, "actor/grad_norm": None})], tail='{"step": 2, "da')
    log = MetricsLog(tmp_path)
    (step,) = log.read()
    assert math.isnan(step.metrics["actor/grad_norm"]), "veRL's logger writes NaN as null"
    with path.open("a") as file:
        file.write('ta": {"critic/score/mean": 4.0}}\n')
    assert [step.reward for step in log.read()] == [1.0, 4.0]


def test_a_source_without_accuracy_counts_with_its_reward_if_none_has_one():
    reward, accuracy = (
        {"val-core/own/reward/mean@4": 0.25, "val-core/own/reward/best@4/mean": 0.5},
        {"val-core/a/acc/mean@1": 0.75},
    )
    assert [Step(1, metrics).accuracy for metrics in (reward, reward | accuracy, {})] == [0.25, 0.75, None]


def test_a_damaged_line_costs_that_line(tmp_path, caplog):
    path = tmp_path / "metrics-1.jsonl"
    write(path, [(1, {})], tail='nonsense\n{"step": "a", "data": {}}\n{"step": 2, "data": {}}\n')
    log = MetricsLog(tmp_path)
    assert [step.number for step in log.read()] == [1, 2]
    assert f"{path}, line 2, is damaged" in caplog.text and "nonsense" in caplog.text and "as 1 more" in caplog.text
    caplog.clear()
    assert len(log.read()) == 2 and not caplog.text, "it was said"
    with path.open("a") as file:
        file.write('{"step": [1], "data": {}}\n')
    assert len(log.read()) == 2 and "line 5, is damaged (step=[1]: " in caplog.text
