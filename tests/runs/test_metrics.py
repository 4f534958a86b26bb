"""Metrics files of several attempts, read while they are written."""

import json
import math
import random

import pytest

from verl_trgrpo.runs.metrics import MEAN_REWARD, MetricsLog, Step, read_run

VAL = "val-core/a/acc/mean@1"


def write(path, records, tail=""):
    path.write_text("".join(json.dumps({"step": step, "data": data}) + "\n" for step, data in records) + tail)


def test_attempts_are_merged_and_the_later_one_wins(tmp_path):
    write(
        tmp_path / "metrics-1.jsonl",
        [(0, {"val-core/a/acc/mean@1": 0.1}), (1, {"critic/score/mean": 1.0}), (2, {"critic/score/mean": 2.0})],
    )
    write(tmp_path / "metrics-2.jsonl", [(1, {"val-core/a/acc/mean@1": 0.3}), (2, {"critic/score/mean": 5.0})])
    write(tmp_path / "metrics-10.jsonl", [(3, {"critic/score/mean": 7.0, "note": "a string is not a metric"})])
    steps = MetricsLog(tmp_path).read().line
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
    for steps, abandoned in (log.read(), MetricsLog(tmp_path).read()):
        assert [step.metrics for step in steps[1:]] == [{acc: 0.8, MEAN_REWARD: 1.0}, {acc: 0.4, MEAN_REWARD: 3.0}]
        assert [branch.text for branch in abandoned] == ["step 3 of attempt 1"]


def test_a_validation_before_a_resumed_training_counts_where_the_run_had_none(tmp_path):
    acc = "val-core/a/acc/mean@1"
    write(tmp_path / "metrics-1.jsonl", [(1, {MEAN_REWARD: 1.0}), (2, {MEAN_REWARD: 2.0})])
    write(tmp_path / "metrics-2.jsonl", [(1, {acc: 0.3})])  # alone it is trainer.val_only, and leaves nothing
    assert MetricsLog(tmp_path).read() == ([Step(1, {MEAN_REWARD: 1.0, acc: 0.3}), Step(2, {MEAN_REWARD: 2.0})], [])


def test_an_attempt_that_is_about_to_begin_leaves_what_is_behind_its_checkpoint(tmp_path):
    write(tmp_path / "metrics-1.jsonl", [(step, {MEAN_REWARD: 1.0}) for step in range(1, 6)])
    log = MetricsLog(tmp_path, begins=(2, 3))
    assert [step.number for step in log.read().line] == [1, 2, 3]
    write(tmp_path / "metrics-2.jsonl", [(4, {MEAN_REWARD: 2.0})])
    steps, [branch] = log.read()
    assert [step.reward for step in steps] == [1.0, 1.0, 1.0, 2.0] and branch.text == "steps 4 to 5 of attempt 1"


@pytest.mark.parametrize("single", [True, False], ids=["one file", "a file for each attempt"])
@pytest.mark.parametrize("seed", range(100))
def test_the_line_is_that_of_the_weights(tmp_path, seed, single):
    """Attempts that load any checkpoint there is; each checkpoint keeps the history of its weights."""
    rng = random.Random(seed)
    every, trained = rng.randint(1, 3), []
    saved: dict[int, dict[int, dict]] = {0: {}}
    log = MetricsLog(tmp_path / "m.jsonl" if single else tmp_path)
    for attempt in range(1, rng.randint(2, 9)):
        start = rng.choice([*saved, max(saved)])
        line, logged = dict(saved[start]), []
        if rng.random() < 0.3 and start:
            logged.append((start, {VAL: rng.random()}))
            line[start].setdefault(VAL, logged[0][1][VAL])  # of all lines with these weights
        for step in range(start + 1, start + rng.randint(0, 8)):
            line[step] = {MEAN_REWARD: rng.random()} | ({VAL: rng.random()} if rng.random() < 0.3 else {})
            logged.append((step, dict(line[step])))
            trained.append((step, line[step]))
            if step % every == 0:
                saved[step] = dict(line)
        path = log.run_dir if single else tmp_path / f"metrics-{attempt}.jsonl"
        with path.open("a") as file:
            file.writelines(json.dumps({"step": step, "data": data}) + "\n" for step, data in logged)
        if rng.random() < 0.5:
            log.read()
        if logged and logged[-1][0] > start:
            steps, abandoned = MetricsLog(log.run_dir).read()
            assert steps == [Step(step, line[step]) for step in sorted(line)]
            left = [(each.number, each.reward) for branch in abandoned for each in branch.steps]
            kept = {step.reward for step in steps}
            assert sorted(left) == sorted(
                (step, data[MEAN_REWARD]) for step, data in trained if data[MEAN_REWARD] not in kept
            )
    assert log.read() == MetricsLog(log.run_dir).read()
    for step, rows in saved.items():
        if step:
            assert read_run(log.run_dir, upto=step).line == [Step(each, rows[each]) for each in sorted(rows)]


def test_a_line_still_being_written_waits_and_nan_is_not_missing(tmp_path):
    path = tmp_path / "metrics-1.jsonl"
    write(path, [(1, {"critic/score/mean": 1.0, "actor/grad_norm": None})], tail='{"step": 2, "da')
    log = MetricsLog(tmp_path)
    (step,) = log.read().line
    assert math.isnan(step.metrics["actor/grad_norm"]), "veRL's logger writes NaN as null"
    with path.open("a") as file:
        file.write('ta": {"critic/score/mean": 4.0}}\n')
    assert [step.reward for step in log.read().line] == [1.0, 4.0]


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
    assert [step.number for step in log.read().line] == [1, 2]
    assert f"{path}, line 2, is damaged" in caplog.text and "nonsense" in caplog.text and "as 1 more" in caplog.text
    caplog.clear()
    assert len(log.read().line) == 2 and not caplog.text, "it was said"
    with path.open("a") as file:
        file.write('{"step": [1], "data": {}}\n')
    assert len(log.read().line) == 2 and "line 5, is damaged (step=[1]: " in caplog.text
