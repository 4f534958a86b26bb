"""The first validation of a resumed run against the one recorded at its step; a shell script stands in for veRL's trainer."""

import io
import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.launch.launching import composed, save_checkpoint
from verl_trgrpo.launch.repeated_validation import repetitions, validation_rows
from verl_trgrpo.launch.train import launch
from verl_trgrpo.runs.metrics import MetricsLog, Step

METRIC = "val-core/kk/3ppl/acc/mean@4"
UNKNOWN = "val-core/nan/reward/mean@4"
ROWS = {"kk/3ppl": 24}  # 96 responses


def compared(before, after, rows=ROWS, metric=METRIC):
    [found] = repetitions(Step(2, {metric: before}), Step(2, {metric: after, "val-aux/x/acc/std@4": 0.1}), rows)
    return found


def test_a_difference_is_measured_in_its_standard_errors():
    found = compared(0.75, 0.25)
    assert found.responses == 96
    assert found.standard_errors == pytest.approx(0.5 / math.sqrt(2 * 0.5 * 0.5 / 96))
    assert (found.step, found.before, found.after) == (2, 0.75, 0.25)


@pytest.mark.parametrize(
    ("before", "after", "rows", "differs"),
    [
        (0.812, 0.312, 24, True),
        (0.0, 0.5, 24, True),
        (1.0, 0.0, 24, True),
        (0.5, 0.4, 24, False),  # 1.4 standard errors
        (0.5, 0.4, 1000, True),
        (0.5, 0.5, 24, False),
        (1.0, 1.0, 24, False),
        (0.5, 0.5, 0, False),
    ],
)
def test_what_is_beyond_chance(before, after, rows, differs):
    found = compared(before, after, {"kk/3ppl": rows})
    assert found.differs is differs
    assert found.message().startswith("warning: ") if differs else found.message() == ""


@pytest.mark.parametrize(("before", "after", "rows"), [(0.8, 0.3, {}), (2.5, -1.0, ROWS)])
def test_a_difference_whose_chance_is_not_known_is_a_note(before, after, rows):
    found = compared(before, after, rows, METRIC.replace("acc", "reward"))
    assert not found.differs and found.standard_errors is None and found.message().startswith("note: ")


def test_only_main_metrics_that_were_recorded_are_compared():
    before = Step(2, {"critic/score/mean": 0.9, METRIC: 0.5, UNKNOWN: math.nan})
    after = Step(2, {"critic/score/mean": 0.1, METRIC: 0.5, "val-core/new/acc/mean@4": 0.1, UNKNOWN: 0.3})
    assert [found.metric for found in repetitions(before, after, ROWS)] == [METRIC]


@pytest.fixture
def validation_file(tmp_path):
    path = tmp_path / "test.parquet"
    pq.write_table(pa.table({"data_source": ["kk/3ppl"] * 24 + ["math"] * 8}), path)
    return str(path)


def test_responses_are_counted_by_data_source(tmp_path, validation_file):
    def rows_of(**changes):
        return validation_rows(composed(tmp_path, **{"data__val_files": validation_file, **changes}).config)

    assert rows_of() == {"kk/3ppl": 24, "math": 8}
    assert rows_of(data__val_files=[validation_file, validation_file]) == {"kk/3ppl": 48, "math": 16}
    assert rows_of(data__val_max_samples=16) == {"kk/3ppl": 12, "math": 4}
    assert rows_of(data__val_files="/no/such.parquet") == {}


def logging(run_dir, attempt, *records):
    """Lines of shell that log steps as veRL's file logger does."""
    lines = [json.dumps({"step": step, "data": data}) for step, data in records]
    return "\n".join(f"echo '{line}' >> {run_dir}/metrics-{attempt}.jsonl" for line in lines)


@pytest.fixture
def resumed(tmp_path, fake_driver, validation_file):
    """``resumed(accuracy)`` trains to step 2 with a validation of 0.75, then resumes and validates with that accuracy."""
    run_dir = tmp_path / "run"
    saved = save_checkpoint(tmp_path / "saved", 2)

    def attempt(script, steps, **changes):
        stream = io.StringIO()
        fake_driver(script)
        launch(composed(run_dir, data__val_files=validation_file, trainer__n_gpus_per_node=1, **changes), steps, stream)
        return stream.getvalue()

    def train(accuracy, **changes):
        first = logging(run_dir, 1, (1, {"critic/score/mean": 0.1}), (2, {"critic/score/mean": 0.2, METRIC: 0.75}))
        attempt(f"{first}; cp -r {saved} {run_dir}; echo 2 > {run_dir}/latest_checkpointed_iteration.txt", 2)
        return attempt(
            logging(run_dir, 2, (2, {METRIC: accuracy}), (3, {"critic/score/mean": 0.3, METRIC: 0.8})), 3, **changes
        )

    train.run_dir = run_dir
    return train


def test_a_resume_with_other_weights_is_said_and_recorded_and_overwrites_nothing(resumed):
    said = resumed(0.25)
    [line] = [line for line in said.splitlines() if METRIC in line]
    assert line.startswith("warning: ") and "0.250" in line and "0.750" in line and "step 2" in line and "96" in line
    [record] = json.loads((resumed.run_dir / "run.json").read_text())["repeated_validations"]
    assert record["differs"] and (record["step"], record["before"], record["after"]) == (2, 0.75, 0.25)
    log = MetricsLog(resumed.run_dir)
    assert [(step.number, step.accuracy) for step in log.read()] == [(1, None), (2, 0.75), (3, 0.8)]
    assert [(step.number, step.accuracy) for step in log.repeated] == [(2, 0.25)]


def test_a_resume_within_chance_is_recorded_in_silence(resumed):
    assert METRIC not in resumed(0.7)
    [record] = json.loads((resumed.run_dir / "run.json").read_text())["repeated_validations"]
    assert not record["differs"] and record["after"] == 0.7


def test_a_path_to_resume_from_is_compared_with_its_own_run(resumed, tmp_path):
    checkpoint = tmp_path / "run" / "global_step_2"
    path = {"trainer__resume_mode": "resume_path", "trainer__resume_from_path": str(checkpoint)}
    assert METRIC in resumed(0.25, **path)


def test_another_validation_is_not_compared(resumed, tmp_path):
    checkpoint = tmp_path / "run" / "global_step_2"
    path = {"trainer__resume_mode": "resume_path", "trainer__resume_from_path": str(checkpoint)}
    assert METRIC not in resumed(0.25, actor_rollout_ref__rollout__val_kwargs__temperature=0.3, **path)
    assert "repeated_validations" not in json.loads((resumed.run_dir / "run.json").read_text())
