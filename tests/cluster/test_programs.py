"""Programs from end to end that do not start veRL's trainer, but take a minute or so: studies, the GPU check, and the doctor."""

import json

from studies.comparisons import run
from tests.scripts import ROOT, load_scripts
from verl_trgrpo.cli import doctor
from verl_trgrpo.cli.main import main


def test_a_comparison_runs(tmp_path):
    """The real trainer, two arms, two steps."""
    words = [
        str(ROOT / "studies/comparisons/kk_tiny.yaml"), "seeds=[3]", "settings.steps=2", "settings.test_every=2",
        "settings.prompts=4", "settings.mini_prompts=2", "settings.samples=4", "settings.max_tokens=48",
        'prepare=["python -m studies.comparisons.puzzles --out {out}/data --train 2=16 3=64 --test 2=2 3=16"]',
        "settings.train_probe=8", "--out", str(tmp_path), "--arms", "grpo", "tr_grpo",
    ]  # fmt: skip
    assert run.main(words) == 0
    table = json.loads((tmp_path / "table.json").read_text())
    assert {*table["runs"]} == {"grpo", "tr_grpo"}
    assert {"final_accuracy", "gap", "grad_norm", "entropy", "response_length"} <= {*table["runs"]["grpo"]["3"]}


def test_the_processor_agrees_with_itself_and_trains(capsys):
    [check] = load_scripts(ROOT / "benchmarks", "gpu_check")
    words = ["--words", "tr_grpo", "stapo", "tr_dapo", "ha_dw"]
    assert check.main(["--device", "cpu", *words, "--steps", "2", "--verl-steps", "2", "--model-steps", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    states = [line.split()[0] for line in lines[1:-1]]
    assert states == ["ok"] * 9 + ["-", "ok", "-", "ok", "ok", "-", "ok", "-", "-"]
    assert [line for line in lines if " 2 steps in" in line] == [lines[13], lines[14], lines[16]]
    assert "sampling" in lines[15] and "update" in lines[-2]


def test_the_doctor_finds_nothing_wrong_here(capsys):
    code = main(["doctor"])
    shown = capsys.readouterr().out
    assert code == 0 and "ok    vLLM can be imported" in shown, shown
    assert "verl_trgrpo.verl_plugin.policy_loss" in shown


def test_doctor_names_failures_and_fixes(monkeypatch, capsys):
    """With the plugin switched off veRL cannot see the loss: a real failure, not a simulated one."""
    monkeypatch.setenv("VERL_USE_EXTERNAL_PLUGINS", "none")
    monkeypatch.setattr(doctor, "_REQUIREMENTS", ("no-such-package>=1", "tyro>=99"))
    name = "veRL sees loss and estimator"
    monkeypatch.setattr(doctor, "_IMPORT_CHECKS", {name: doctor._IMPORT_CHECKS[name]})
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert "FAIL  no-such-package" in output and "[cpu]" in output
    assert "FAIL  tyro" in output and 'pip install "tyro>=99"' in output
    assert "Unsupported loss mode: tr_grpo" in output and "VERL_USE_EXTERNAL_PLUGINS" in output
