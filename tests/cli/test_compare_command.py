"""`verl-trgrpo compare`: the command from a study file to its table."""

import json
from pathlib import Path

import pytest

from verl_trgrpo.cli.main import main

RECIPE = Path(__file__).parents[2] / "recipes" / "compare" / "kk_tiny.yaml"
TRAINER = Path(__file__).parents[1] / "runs" / "compare" / "trainer.py"


@pytest.fixture
def study(tmp_path):
    (tmp_path / "train.parquet").touch()
    path = tmp_path / "heights.yaml"
    path.write_text(
        f"title: Heights\nscript: {TRAINER}\ndata: {{train: train.parquet, test: train.parquet}}\nseeds: [0, 1]\n"
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


def test_the_study_of_the_recipe_runs(tmp_path):
    """The real trainer, two arms, two steps."""
    small = tmp_path / "kk.yaml"
    text = RECIPE.read_text().replace("../minimal/train.py", str(RECIPE.parents[1] / "minimal" / "train.py"))
    kept = [line for line in text.splitlines() if not line.startswith("  ") or "{arm:" not in line or ": {arm: grpo}" in line
            or ": {arm: tr_grpo}" in line]  # fmt: skip
    small.write_text("\n".join(kept))
    words = [
        "compare", str(small), "--out", str(tmp_path), "seeds=[3]", "settings.steps=2", "settings.test_every=2",
        "settings.prompts=4", "settings.mini_prompts=2", "settings.samples=4", "settings.max_tokens=48",
        "puzzles.test.3=16", "puzzles.test.2=2", "settings.train_probe=8",
    ]  # fmt: skip
    assert main(words) == 0
    table = json.loads((tmp_path / "table.json").read_text())
    assert {*table["runs"]} == {"grpo", "tr_grpo"}
    assert {"final_accuracy", "gap", "grad_norm", "entropy", "response_length"} <= {*table["runs"]["grpo"]["3"]}
