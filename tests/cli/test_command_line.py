"""The console script as a user meets it."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from verl_trgrpo.cli import doctor
from verl_trgrpo.cli.main import COMMANDS, main


def test_help_teaches(capsys):
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    for name in COMMANDS:
        assert f"  {name} " in listed
        with pytest.raises(SystemExit) as caught:
            main([*name.split(), "--help"])
        assert caught.value.code == 0
        text = capsys.readouterr().out
        assert f"verl-trgrpo {name} " in text
        assert f"examples:\n  verl-trgrpo {name}" in text
        prose = [line for line in text.splitlines() if line[:1] == " " != line[1:2]]
        assert max(map(len, prose)) <= 100, "left to the terminal, which would break words"
    assert main(["data", "--help"]) == 0
    assert "data check" in (group := capsys.readouterr().out) and "doctor " not in group.partition("`")[0]


@pytest.mark.parametrize("words", [[], ["tain"], ["data"], ["data", "chek"], ["train", "--tau=6"]])
def test_a_word_that_is_no_command_or_option_is_an_error(words, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_help_needs_nothing_heavy():
    code = """
import sys
from verl_trgrpo.cli.main import COMMANDS, main
for name in COMMANDS:
    try:
        main([*name.split(), "--help"])
    except SystemExit:
        pass
heavy = {"torch", "vllm", "verl", "transformers", "numpy", "pyarrow", "tantivy", "uvicorn"}
print("HEAVY", sorted(heavy & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("HEAVY []\n")


def test_doctor_passes_here():
    findings = {finding.name: finding for finding in doctor.examine()}
    assert all(finding.ok for finding in findings.values()), findings
    assert "verl_trgrpo.verl_plugin.policy_loss" in findings["veRL sees loss and estimator"].found


def test_doctor_names_failures_and_remedies(monkeypatch, capsys):
    """With the plugin switched off veRL cannot see the loss: a real failure, not a simulated one."""
    monkeypatch.setenv("VERL_USE_EXTERNAL_PLUGINS", "none")
    monkeypatch.setattr(doctor, "_REQUIREMENTS", ("no-such-package>=1",))
    monkeypatch.setattr(doctor, "_PROGRAMS", [program for program in doctor._PROGRAMS if "veRL sees" in program[0]])
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert "FAIL  no-such-package" in output and 'remedy: pip install "no-such-package>=1"' in output
    assert "Unsupported loss mode: tr_grpo" in output and "VERL_USE_EXTERNAL_PLUGINS" in output


def test_ctrl_c_promises_nothing_where_nothing_goes_on():
    with subprocess.Popen(
        [sys.executable, "-m", "verl_trgrpo", "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        # The first answer of its other interpreter: it is in the middle of its work.
        assert any("device" in line for line in process.stdout)
        (other,) = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()
    assert process.returncode == 130 and error.strip() == "interrupted"
    assert not psutil.wait_procs([other], timeout=600)[1]


RECIPE = Path(__file__).parents[2] / "recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml"


@pytest.mark.parametrize("given", [["validate", str(RECIPE), "--no-files", "--show"], ["--help"]])
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path, given):
    words = [sys.executable, "-m", "verl_trgrpo", *given]
    with (tmp_path / "stderr").open("w+") as error:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=error)
        process.stdout.close()
        assert process.wait(timeout=3600) == 141
        error.seek(0)
        said = error.read()
    assert "error" not in said.lower() and "Traceback" not in said, said


def test_a_shaping_of_the_user_s_own_is_found_beside_the_command(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/shapings.py").write_text("def half(probs, *, floor=0.5):\n    return floor + probs / 2\n")
    loss = "actor_rollout_ref.actor.policy_loss.shaping"
    words = [
        "kk_quickstart",
        "--no-files",
        "platform=cpu",
        "shaping=custom",
        f"{loss}.name=mine.shapings.half",
        f"+{loss}.floor=0.3",
    ]
    safe = ["-P"] if sys.version_info >= (3, 11) else []  # without it Python itself looks there
    command = [sys.executable, *safe, "-m", "verl_trgrpo", "validate", *words]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "cannot be imported" not in found.stdout and found.returncode == 0, found.stdout
    wrong = subprocess.run([*command, f"{loss}.name=mine.shapings.third"], cwd=tmp_path, capture_output=True, text=True)
    assert "cannot be imported" in wrong.stdout and wrong.returncode == 1
