"""`verl-trgrpo compare`, from a study file to its table, and `report`."""

from pathlib import Path

import pytest

from tests.compare.files import write_comparison
from verl_trgrpo.cli.main import main

TRAINER = Path(__file__).parents[1] / "compare" / "made_up_trainer.py"


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
    assert main(["compare", str(study), "--jobs", "2"]) == 0
    shown = capsys.readouterr()
    assert "2 arms x 2 seeds" in shown.err
    out = tmp_path / "runs" / "compare" / "heights"
    assert (out / "table.md").read_text() in shown.out and "None" not in shown.out
    assert "0.605 [0.541, 0.669]" in shown.out
    assert "- tr_grpo is higher" in shown.out
    assert main(["compare", str(study)]) == 0
    assert "0.605 [0.541, 0.669]" in capsys.readouterr().out


def test_a_failed_run_gives_exit_code_1_and_is_named(study, tmp_path, capsys):
    words = ["compare", str(study), "--out", str(tmp_path / "out"), "arms.tr_grpo.fail-once=disk"]
    assert main(words) == 1
    shown = capsys.readouterr()
    assert "failed: " in shown.err
    assert "planted failure: disk" in shown.err
    assert "2 of 4 runs are not finished" in shown.out
    assert main(words) == 0


def test_an_accuracy_that_no_run_logged_is_said_with_those_that_they_did(study, tmp_path, capsys):
    assert main(["compare", str(study), "--out", str(tmp_path / "out"), "accuracy=val-core/kk/acc"]) == 2
    shown = capsys.readouterr().err
    assert "accuracy=val-core/kk/acc: " in shown and "val-core/kk_3ppl/acc/mean@1" in shown


def test_a_comparison_becomes_a_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_comparison(tmp_path / "study", {"grpo": 0.05, "tr_grpo": 0.08}, seeds=3)
    assert main(["report", "study", "--baseline", "tr_grpo"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    # Three pairs with the same sign: p = 2 / 2^3; three figures of one arm are tested.
    page = (tmp_path / "report.html").read_text()
    assert "0.800 [0.750,\u00a00.850]" in page and "-0.180 p=0.25 (0.75)" in page
