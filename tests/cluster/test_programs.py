"""Programs from end to end that start no training, but take a minute or more: a study, the GPU check, and the doctor."""

import json
import sys

import pytest
import yaml

from tests.recipes.chains_script import FOLDER, study
from tests.scripts import ROOT, load_scripts
from verl_trgrpo.cli.main import main


def test_the_study_goes_on_where_it_stopped_and_says_what_each_line_is(tmp_path, monkeypatch):
    small = yaml.safe_load((FOLDER / "study.yaml").read_text())
    first = small["parts"][0] | {"fillers": [10], "right": [0.75], "rates": [0.004, 0.008], "arms": ["grpo", "tr_grpo"]}
    small |= {"parts": [first, first | {"arms": ["grpo", "grpo_scaled_lr"]}], "measured_batches": 4}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(small))
    words = ["study.py", "--study", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out"), "--seeds", "2"]
    records = tmp_path / "out" / "records.jsonl"
    monkeypatch.setattr(sys, "argv", words)
    assert study.main() == 0
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    assert [line["arm"] for line in lines] == ["measurement", "grpo", "tr_grpo", "grpo_scaled_lr"]
    assert (
        lines[3]["rate"] == pytest.approx(lines[1]["rate"] * lines[0]["mean_weight"]) and lines[0]["mean_weight"] > 1.1
    )
    assert all(len(line["accuracy"]) == 2 and line["rate"] > 0 for line in lines[1:])
    records.write_text("".join(json.dumps(line) + "\n" for line in lines[:2]))
    assert study.main() == 0
    again = [json.loads(line) for line in records.read_text().splitlines()]
    assert [line["accuracy"] for line in again[1:]] == [line["accuracy"] for line in lines[1:]]
    monkeypatch.setattr(sys, "argv", [*words[:-1], "3"])
    with pytest.raises(SystemExit):
        study.main()


def test_the_processor_agrees_with_itself_and_trains(capsys):
    [check] = load_scripts(ROOT / "benchmarks", "gpu_check")
    assert check.main(["--device", "cpu", "--words", "tr_grpo", "stapo", "tr_dppo_tv", "ha_dw", "--steps", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["ok"] * 9 + ["-", "ok", "-"]
    assert "2 steps" in lines[-3]


def test_the_doctor_finds_nothing_wrong_here(capsys):
    code = main(["doctor"])
    shown = capsys.readouterr().out
    assert code == 0 and "ok    vLLM can be imported" in shown, shown
