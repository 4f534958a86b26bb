"""Reading metrics files of several attempts, and a picture that shows what was logged."""

import json
import math

import pytest

from verl_trgrpo.runs.charts import plot_curves
from verl_trgrpo.runs.metrics import MetricsLog, Step


def write(path, records, tail=""):
    path.write_text("".join(json.dumps({"step": step, "data": data}) + "\n" for step, data in records) + tail)


def test_attempts_are_merged_and_the_later_one_wins(tmp_path):
    write(
        tmp_path / "metrics-1.jsonl",
        [(0, {"val-core/a/acc/mean@1": 0.1}), (1, {"critic/score/mean": 1.0}), (2, {"critic/score/mean": 2.0})],
    )
    write(tmp_path / "metrics-2.jsonl", [(1, {"val-core/a/acc/mean@1": 0.3}), (2, {"critic/score/mean": 5.0})])
    write(tmp_path / "metrics-10.jsonl", [(3, {"critic/score/mean": 7.0, "note": "text is not a metric"})])
    steps = MetricsLog(tmp_path).read()
    assert [step.number for step in steps] == [0, 1, 2, 3]
    assert [step.reward for step in steps] == [None, 1.0, 5.0, 7.0]
    assert [step.accuracy for step in steps] == [0.1, 0.3, None, None]
    assert "note" not in steps[-1].metrics


def test_a_line_still_being_written_waits(tmp_path):
    path = tmp_path / "metrics-1.jsonl"
    write(path, [(1, {"critic/score/mean": 1.0})], tail='{"step": 2, "da')
    log = MetricsLog(tmp_path)
    assert len(log.read()) == 1
    with path.open("a") as file:
        file.write('ta": {"critic/score/mean": 4.0}}\n')
    assert [step.reward for step in log.read()] == [1.0, 4.0]


@pytest.mark.parametrize("other", ["actor/tr_weight_mean", "actor/entropy"])
def test_the_picture_is_drawn_and_differs_with_the_data(tmp_path, other):
    pictures = []
    for slope in (0.01, 0.05):
        metrics = [{"critic/score/mean": 1.0, "val-core/a/acc/mean@1": slope * i, other: 1.2} for i in range(12)]
        steps = [Step(i, one) for i, one in enumerate(metrics)]
        pictures.append(plot_curves(steps, tmp_path / "curves.png", "title").read_bytes())
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert pictures[0] != pictures[1]


def test_what_is_not_a_number_is_not_what_was_not_logged(tmp_path):
    """veRL's logger writes NaN as null."""
    (tmp_path / "metrics-1.jsonl").write_text(
        '{"step": 1, "data": {"actor/grad_norm": null, "critic/score/mean": 1.0}}\n'
    )
    (step,) = MetricsLog(tmp_path).read()
    assert math.isnan(step.metrics["actor/grad_norm"])
