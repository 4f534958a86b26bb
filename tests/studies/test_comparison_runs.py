"""Running studies: every arm with every seed once, whatever happens in between. The trainer is a small real process."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from studies.comparisons import run as runner
from studies.comparisons.run import (
    LOCK,
    Inputs,
    all_unpacked,
    finished_runs,
    main,
    make_inputs,
    run_command,
    run_directory,
    run_study,
    write_tables,
)
from studies.comparisons.study import Study
from tests.waiting import wait_for
from verl_trgrpo.common.progress import interruptible
from verl_trgrpo.compare.comparison import compare_runs
from verl_trgrpo.runs.records import read_record, write_record

ROOT = Path(__file__).parents[2]
TRAINER = Path(__file__).with_name("made_up_trainer.py")
INPUTS = Inputs(TRAINER, TRAINER, "a/model")
STUDY = Study(
    title="heights",
    arms={"grpo": {"height": 0.5}, "tr_grpo": {"height": 0.6}, "worse": {"height": 0.1}},
    seeds=[0, 1, 2],
    baseline="grpo",
    primary="tr_grpo",
    script=str(TRAINER),
    data={"train": str(TRAINER), "test": str(TRAINER)},
    model="a/model",
    accuracy="val-core/kk_3ppl/acc/mean@1",
)


def accuracies(study, out):
    """Final accuracies of the finished runs by arm and seed."""
    figures, _ = compare_runs(finished_runs(study, out), study.baseline, study.accuracy)
    return {arm: {seed: run["final_accuracy"] for seed, run in runs.items()} for arm, runs in figures.items()}


def test_runs_records_and_the_second_time_nothing_is_run(tmp_path):
    assert run_study(STUDY, INPUTS, tmp_path, jobs=3) == []
    assert accuracies(STUDY, tmp_path) == {
        arm: pytest.approx({seed: height + 0.01 * seed for seed in STUDY.seeds})
        for arm, height in (("grpo", 0.5), ("tr_grpo", 0.6), ("worse", 0.1))
    }
    run_dir = run_directory(tmp_path, "tr_grpo", 2)
    record = read_record(run_dir).content()
    assert (record["arm"], record["seed"], record["finished"]) == ("tr_grpo", 2, True)
    assert record["settings"] == {"height": 0.6}
    assert record["versions"]["torch"]
    assert "model a/model" in (run_dir / "run.log").read_text()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert run_study(STUDY, INPUTS, tmp_path) == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_run_that_the_kernel_killed_is_told_from_one_that_failed(tmp_path):
    study = replace(STUDY, arms={"grpo": {"height": 0.5, "fail-once": "SIGKILL"}}, primary="", seeds=[0])
    (failure,) = run_study(study, INPUTS, tmp_path)
    assert "SIGKILL" in failure and "--jobs" in failure


def test_another_setting_needs_another_directory(tmp_path):
    run_study(replace(STUDY, seeds=[0]), INPUTS, tmp_path)
    changed = replace(STUDY, seeds=[0], arms={**STUDY.arms, "tr_grpo": {"height": 0.7}})
    with pytest.raises(ValueError, match=r"tr_grpo.*run\.json.*another --out"):
        run_study(changed, INPUTS, tmp_path)
    assert accuracies(STUDY, tmp_path)["tr_grpo"] == {0: pytest.approx(0.6)}


def test_runs_unpacked_from_an_archive_count_as_finished(tmp_path):
    """Records travel without the command, which names directories of another machine."""
    run_study(replace(STUDY, seeds=[0]), INPUTS, tmp_path)
    run_dir = run_directory(tmp_path, "tr_grpo", 0)
    packed = {name: value for name, value in read_record(run_dir).content().items() if name != "command"}
    copy = tmp_path / "elsewhere.parquet"
    copy.write_bytes(TRAINER.read_bytes())
    elsewhere = Inputs(copy, copy, "b/model")
    study = replace(STUDY, seeds=[0], arms={"tr_grpo": STUDY.arms["tr_grpo"]}, baseline="tr_grpo", primary="")

    write_record(run_dir, packed)
    assert all_unpacked(study, tmp_path) and not all_unpacked(replace(study, seeds=[0, 1]), tmp_path)
    assert run_study(study, elsewhere, tmp_path) == []
    assert "model a/model" in (run_dir / "run.log").read_text(), "the run was made again"
    with pytest.raises(ValueError, match="another --out"):
        run_study(replace(study, arms={"tr_grpo": {"height": 0.7}}), elsewhere, tmp_path)
    copy.write_text("other rows")
    with pytest.raises(ValueError, match=r"other contents of .*elsewhere\.parquet"):
        run_study(study, elsewhere, tmp_path)
    copy.write_bytes(TRAINER.read_bytes())
    write_record(run_dir, packed | {"finished": False})
    with pytest.raises(ValueError, match="another --out"):
        run_study(study, elsewhere, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_signals_end_the_runs_under_way(tmp_path, number):
    (tmp_path / "train.parquet").touch()
    (tmp_path / "study.yaml").write_text(
        f"title: t\nscript: {TRAINER}\ndata: {{train: train.parquet, test: train.parquet}}\nmodel: m\nseeds: [0]\n"
        "baseline: a\narms:\n  a: {height: 1, wait: 36000}\n  b: {height: 1, wait: 36000}\n  c: {height: 1, wait: 36000}\n"
    )
    out = tmp_path / "out"
    words = [sys.executable, "-m", "studies.comparisons.run", str(tmp_path / "study.yaml"), "--jobs", "2"]
    process = subprocess.Popen([*words, "--out", str(out)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    logs = [run_directory(out, arm, 0) / "run.log" for arm in "ab"]
    wait_for(
        lambda: all(log.is_file() and "waiting" in log.read_text() for log in logs), lambda: process.poll() is not None
    )
    process.send_signal(number)
    _, error = process.communicate(timeout=3600)
    assert process.returncode == 130, error
    assert "interrupted; the same command" in error
    assert not run_directory(out, "c", 0).exists(), "a run that did not start leaves nothing"
    here = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(out).encode() in _bytes(path)]
    assert not here, "no trainer may be left"
    for arm in "ab":
        record = read_record(run_directory(out, arm, 0)).content()
        assert not record["finished"]


def test_a_signal_amid_the_start_of_a_run_ends_that_run_too(tmp_path, monkeypatch):
    study = replace(STUDY, arms={"grpo": {"height": 0.5, "wait": 36000}}, primary="", seeds=[0, 1])
    start, started = runner._start, []

    def interrupted(*arguments):
        started.append(start(*arguments))
        signal.raise_signal(signal.SIGINT)
        return started[-1]

    monkeypatch.setattr(runner, "_start", interrupted)
    try:
        with interruptible() as progress, pytest.raises(KeyboardInterrupt):
            run_study(study, INPUTS, tmp_path, jobs=2, progress=progress)
        assert [process.poll() for process in started] == [-signal.SIGTERM]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_trainer_that_outlived_its_command_is_not_joined_by_another(tmp_path):
    study = replace(STUDY, seeds=[0])
    run_dir = run_directory(tmp_path, "grpo", 0)
    run_dir.mkdir(parents=True)
    record = {"arm": "grpo", "command": run_command(study, INPUTS, "grpo", 0, run_dir), "its": "own"}
    (run_dir / "run.json").write_text(json.dumps(record))
    # A process that holds the lock as a trainer does whose parent was killed with SIGKILL.
    code = "import fcntl, sys; fcntl.flock(1, fcntl.LOCK_EX); sys.stderr.write('held'); sys.stdin.read()"
    with (run_dir / LOCK).open("ab") as lock:
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", code], stdout=lock, **pipes) as left:
            assert left.stderr.read(4) == b"held"
            (failure,) = run_study(study, INPUTS, tmp_path)
            assert str(run_dir) in failure and "another process" in failure
            assert read_record(run_dir).content() == record, "the record is that of the run that is still there"
            assert [len(runs) for runs in finished_runs(study, tmp_path).values()] == [0, 1, 1], "the others go on"
    assert run_study(study, INPUTS, tmp_path) == []
    assert read_record(run_dir).finished


def _bytes(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_switches_of_the_script_take_no_value(tmp_path):
    study = replace(STUDY, settings={"bf16": True, "skip_first_test": False, "steps": 1})
    command = run_command(study, INPUTS, "grpo", 0, tmp_path)
    assert command[command.index("--bf16") + 1] == "--steps" and "--skip-first-test" not in command


def test_commands_of_verl_runs(tmp_path):
    study = replace(STUDY, trainer="verl", script="", config="kk_quickstart", settings={"trainer.test_freq": 2},
                    arms={"grpo": {"algorithm": "grpo"}}, primary="")  # fmt: skip
    command = run_command(study, INPUTS, "grpo", 3, tmp_path / "it's" / "seed-3")
    assert command[2:4] == ["train", "kk_quickstart"]
    assert f"trainer.default_local_dir='{tmp_path}/it\\'s/seed-3'" in command
    assert {"data.seed=3", "actor_rollout_ref.rollout.seed=3", "algorithm=grpo", "trainer.test_freq=2"} <= {*command}
    recipe = replace(study, config=str(tmp_path / "small.yaml"))
    assert run_command(recipe, INPUTS, "grpo", 3, tmp_path)[3] == recipe.config


def test_tables(tmp_path):
    run_study(STUDY, INPUTS, tmp_path, jobs=3)
    text = write_tables(STUDY, tmp_path)
    assert (tmp_path / "table.md").read_text() == text
    table = json.loads((tmp_path / "table.json").read_text())
    found = table["comparison"]
    difference = found["tr_grpo"]["final_accuracy"]["difference"]
    # All pairs differ by the same: no interval. 2 of 8 signs are as far from 0; the primary test is not corrected.
    assert difference["estimate"] == {"mean": pytest.approx(0.1), "low": None, "high": None}
    assert (difference["test"], difference["pairs"]) == ({"p": 0.25, "corrected": None}, 3)
    # All others are, together: two arms, final accuracy, area and roughness, but for the primary one.
    assert found["worse"]["final_accuracy"]["difference"]["test"]["corrected"] == 1.0
    assert found["tr_grpo"]["area"]["difference"]["test"]["corrected"] == 1.0
    assert table["runs"]["worse"]["1"]["final_accuracy"] == pytest.approx(0.11)
    assert found["grpo"]["final_accuracy"]["estimate"]["mean"] == pytest.approx(0.51)
    assert "| tr_grpo (primary) | +0.100 p=0.25 " in text


def test_data_and_model_are_prepared_by_the_study_s_commands_in_their_order(tmp_path):
    script, out = tmp_path / "make it.py", tmp_path / "the out"
    script.write_text(
        "import pathlib, sys\n"
        "out = pathlib.Path(sys.argv[1])\n"
        "out.mkdir(parents=True, exist_ok=True)\n"
        "[(out / f'{name}.parquet').write_text(' '.join(sys.argv[2:])) for name in ('train', 'test')]\n"
    )
    commands = [f"python '{script}' {{out}}/data {number} of two" for number in ("one", "two")]
    data = {"train": "{out}/data/train.parquet", "test": "{out}/data/test.parquet"}
    study = replace(STUDY, prepare=commands, data=data, model="{out}/model")
    inputs = make_inputs(study, out)
    assert inputs == Inputs(out / "data" / "train.parquet", out / "data" / "test.parquet", str(out / "model"))
    assert inputs.train.read_text() == "two of two"
    script.write_text("raise SystemExit(3)")
    with pytest.raises(ValueError, match=r"prepare failed with exit code 3(.|\n)*one of two"):
        make_inputs(study, out)
    with pytest.raises(ValueError, match=r"data.test=.*nowhere.parquet does not exist"):
        make_inputs(replace(STUDY, data=STUDY.data | {"test": "nowhere.parquet"}), out)
    assert make_inputs(STUDY, out).model == "a/model"


@pytest.fixture
def study(tmp_path):
    (tmp_path / "train.parquet").touch()
    path = tmp_path / "heights.yaml"
    path.write_text(
        f"title: Heights\nscript: {TRAINER}\ndata: {{train: train.parquet, test: train.parquet}}\nmodel: m\nseeds: [0, 1]\n"
        "baseline: grpo\narms:\n  grpo: {height: 0.5}\n  tr_grpo: {height: 0.6}\nhypotheses: [tr_grpo is higher]\n"
    )
    return path


def test_runs_and_prints_the_table(study, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([str(study), "--jobs", "2"]) == 0
    shown = capsys.readouterr()
    assert "2 arms x 2 seeds" in shown.err
    out = tmp_path / "runs" / "compare" / "heights"
    assert (out / "table.md").read_text() in shown.out and "None" not in shown.out
    assert "0.605 [0.541, 0.669]" in shown.out
    assert "- tr_grpo is higher" in shown.out
    assert main([str(study)]) == 0
    assert "0.605 [0.541, 0.669]" in capsys.readouterr().out


def test_a_failed_run_gives_exit_code_1_and_is_named(study, tmp_path, capsys):
    words = [str(study), "--out", str(tmp_path / "out"), "arms.tr_grpo.fail-once=disk"]
    assert main(words) == 1
    shown = capsys.readouterr()
    assert "failed: " in shown.err
    assert "planted failure: disk" in shown.err
    assert "2 of 4 runs are not finished" in shown.out
    assert main(words) == 0


def test_an_accuracy_that_no_run_logged_is_said_with_those_that_they_did(study, tmp_path):
    with pytest.raises(ValueError, match=r"accuracy=val-core/kk/acc: .*val-core/kk_3ppl/acc/mean@1"):
        main([str(study), "--out", str(tmp_path / "out"), "accuracy=val-core/kk/acc"])
