"""Runs found below the paths that a user gives, their labels and seeds."""

import pytest

from tests.compare.files import write_comparison, write_generations, write_record, write_run, write_steps
from verl_trgrpo.compare.arms import last_common_step, read_runs


def names(runs):
    return [(run.label, run.seed) for run in runs]


def test_label_and_seed_come_from_the_name(tmp_path):
    runs = [
        write_run(tmp_path / name, 0.1) for name in ("tr_grpo-seed12", "a seed_3", "plain", "arm/seed-7", "reseeded")
    ]
    assert names(read_runs([str(run) for run in runs])) == [
        ("tr_grpo", 12), ("a ", 3), ("plain", None), ("arm", 7), ("reseeded", None),
    ]  # fmt: skip


def test_a_seed_may_stand_in_the_options_of_the_single_file_trainer(tmp_path):
    run = write_run(tmp_path / "first-try", 0.1)
    (run / "options.json").write_text('{"arm": "grpo", "seed": 4}')
    assert names(read_runs([str(run)])) == [("first-try", 4)]


def test_a_comparison_expands_to_its_runs_by_their_records(tmp_path):
    root = write_comparison(tmp_path / "study", {"tr_grpo": 0.1, "grpo": 0.05}, seeds=2)
    write_record(root / "runs" / "grpo" / "seed-1", arm="renamed", seed=5)
    runs = read_runs([str(root)])
    assert names(runs) == [("grpo", 0), ("renamed", 5), ("tr_grpo", 0), ("tr_grpo", 1)]
    assert runs[0].record.commit == "abc1234567890"


def test_a_directory_of_runs_expands_and_leaves_other_files_alone(tmp_path):
    write_run(tmp_path / "grpo-seed0", 0.1)
    write_run(tmp_path / "grpo-seed10", 0.1)
    write_run(tmp_path / "grpo-seed9", 0.1)
    write_run(tmp_path / "grpo-seed0" / "inner-seed4", 0.1)  # a run's own directory is not searched
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test.jsonl").write_text('{"question": "x"}\n')
    write_generations(tmp_path / "dumps", {0: [{"input": "a", "output": "b"}]})
    assert names(read_runs([str(tmp_path)])) == [("grpo", 0), ("grpo", 9), ("grpo", 10)]


def test_a_run_that_ended_before_its_first_step_is_named(tmp_path, caplog):
    write_run(tmp_path / "grpo-seed0", 0.1)
    write_run(tmp_path / "grpo-seed1", 0.1)
    write_record(tmp_path / "grpo-seed1", arm="grpo", seed=1)
    assert len(read_runs([str(tmp_path)])) == 2 and not caplog.records
    for file in (tmp_path / "grpo-seed1").rglob("*.jsonl"):
        file.unlink()
    assert names(read_runs([str(tmp_path)])) == [("grpo", 0)]
    assert "grpo-seed1 has no metrics and is left out" in caplog.text


def test_all_problems_come_out_at_once(tmp_path):
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "a" / "grpo-seed0", 0.1)
    write_run(tmp_path / "b" / "grpo-seed0", 0.1)
    places = ["missing", "empty", "a", "b"]
    with pytest.raises(ValueError, match="3 problems") as caught:
        read_runs([str(tmp_path / place) for place in places])
    message = str(caught.value)
    assert f"{tmp_path / 'missing'} does not exist" in message
    assert f"{tmp_path / 'empty'} has no metrics" in message and "trainer.logger" in message
    assert "are both grpo seed 0" in message


def test_damaged_files_of_a_run_cost_what_they_say(tmp_path, caplog):
    (write_run(tmp_path / "grpo-seed3", 0.1) / "run.json").write_text("{")
    (tmp_path / "grpo-seed3" / "options.json").write_text("[]")
    write_steps(tmp_path / "garbage-seed1" / "metrics-1.jsonl", {1: {"x": 1.0}}, tail="nonsense\n")
    assert names(read_runs([str(tmp_path)])) == [("garbage", 1), ("grpo", 3)]
    assert all(name in caplog.text for name in ("run.json is ", "metrics-1.jsonl, line 2, is damaged"))


def test_an_unfinished_run_does_not_shorten_the_others(tmp_path):
    write_run(tmp_path / "grpo-seed0", 0.1, last=6)
    late = write_run(tmp_path / "grpo-seed1", 0.1, last=1)
    assert last_common_step(read_runs([str(tmp_path)])) == 1
    write_record(late, arm="grpo", seed=1, finished=False)
    assert last_common_step(read_runs([str(tmp_path)])) == 6
    assert last_common_step(read_runs([str(late)])) == 1


def test_verls_own_logger_is_read(tmp_path, monkeypatch):
    from verl.utils.tracking import Tracking

    monkeypatch.setenv("VERL_FILE_LOGGER_ROOT", str(tmp_path))
    tracking = Tracking("project", "exp-seed1", ["file"])
    for step in range(3):
        tracking.log({"actor/grad_norm": 0.5 * step, "val-core/kk/acc/mean@1": 0.25}, step)
    tracking.finish()
    (run,) = read_runs([str(tmp_path)])
    assert (run.label, run.seed) == ("exp", 1)
    assert [step.metrics["actor/grad_norm"] for step in run.steps] == [0.0, 0.5, 1.0]
    assert run.steps[2].accuracy == 0.25
