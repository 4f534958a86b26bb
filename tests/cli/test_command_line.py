"""The console script as a user meets it."""

import math
import subprocess
import sys

import pytest

from verl_trgrpo.cli.main import commands, main
from verl_trgrpo.cli.runs import figures, weight_lines, weight_range
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.metrics import MEAN_REWARD, UNWEIGHTED_SHARE, WEIGHT, WEIGHT_STD, WEIGHTED_SHARE, Step
from verl_trgrpo.runs.run_directory import write_config


def test_help_lists_the_commands_or_those_of_a_group(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in commands())
    assert main(["data", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "  data check " in shown and "  train " not in shown


@pytest.mark.parametrize("name", commands())
def test_help_of_a_command_shows_examples_in_lines_of_at_most_120_characters(name, capsys):
    assert main([*name.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert f"\nexamples:\n  verl-trgrpo {name}" in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("words", [[], ["tain"], ["data"], ["data", "chek"], ["train", "--tau=6"]])
def test_an_unknown_command_or_option_is_an_error(words, capsys):
    assert main(words) == 2
    shown = capsys.readouterr()
    assert "".join(words[-1:]) in shown.err and not shown.out


def test_help_imports_no_heavy_package():
    code = """
import sys
from verl_trgrpo.cli.main import commands, main
for name in commands():
    if not name.startswith("data build "):
        main([*name.split(), "--help"])
heavy = {"torch", "vllm", "verl", "transformers", "numpy", "pyarrow", "tantivy", "uvicorn"}
print("HEAVY", sorted(heavy & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("HEAVY []\n")


def test_a_reader_that_closes_the_pipe_is_not_an_error(tmp_path):
    words = [sys.executable, "-m", "verl_trgrpo", "--help"]
    with (tmp_path / "stderr").open("w+") as error:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=error)
        process.stdout.close()
        assert process.wait(timeout=3600) == 141
        error.seek(0)
        assert not error.read()


def test_a_shaping_of_the_user_is_found_in_the_current_directory(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/shapings.py").write_text("def half(probs, *, floor=0.5):\n    return floor + probs / 2\n")
    loss = "actor_rollout_ref.actor.policy_loss.shaping"
    overrides = ["platform=cpu", "shaping=custom", f"{loss}.name=mine.shapings.half", f"+{loss}.floor=0.3"]
    monkeypatch.chdir(tmp_path)
    # As Python begins with -P, which does not add the current directory.
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", ".", str(tmp_path))])
    code = main(["validate", "kk_quickstart", "--no-files", *overrides])
    shown = capsys.readouterr().out
    assert "cannot be imported" not in shown and code == 0, shown


ACCURACY = "val-core/a/acc/mean@1"


def test_figures_are_those_of_the_last_step_and_of_all_validations():
    steps = [
        Step(0, {ACCURACY: 0.1}),
        Step(2, {ACCURACY: 0.8, MEAN_REWARD: 0.5}),
        Step(3, {ACCURACY: 0.7, MEAN_REWARD: 0.6}),
    ]
    lines = figures(steps)
    assert lines[0].split()[-1] == "3" and "0.100 -> 0.700 (best 0.800)" in lines[1]
    assert "0.550 -> 0.550" in lines[2] and len(lines) == 3


def test_a_run_that_logged_nothing_has_no_figures():
    assert len(figures([])) == 1


def weighted(step: int, *values: float) -> Step:
    return Step(step, dict(zip((WEIGHT, WEIGHT_STD, UNWEIGHTED_SHARE, WEIGHTED_SHARE), values, strict=True)))


def test_a_line_says_what_the_weights_did_on_average():
    steps = [weighted(1, 1.2, 0.1, 0.6, 0.5), Step(2, {MEAN_REWARD: 1.0}), weighted(3, 1.3, 0.2, 0.4, 0.3)]
    (line,) = weight_lines([*steps, weighted(4, math.nan, 0.1, 0.9, 0.9)])
    assert "1.25 +- 0.15" in line and "50%" in line and "40%" in line


def test_weights_that_are_nearly_equal_are_called_so():
    (line,) = weight_lines([weighted(1, 1.4, 0.001, 0.01, 0.01)])
    assert "constant factor" in line and "%" not in line
    assert not weight_lines([Step(1, {MEAN_REWARD: 1.0})]), "a run without weights has no line"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["algorithm=tr_grpo"], (1.0, 1.4)),
        (["algorithm=tr_grpo", "shaping=power"], (0.1, 1.0)),
        (["algorithm=tr_grpo", "shaping=rsi"], None),  # of entropy, too
        (["algorithm=tr_grpo", "shaping=uniform"], None),
        (["algorithm=tr_grpo", "actor_rollout_ref.actor.policy_loss.shaping.name=mine"], None),  # of the user's own
        (["algorithm=grpo"], None),
    ],
)
def test_the_axis_of_weights_is_the_range_of_the_shaping(overrides, expected, tmp_path):
    write_config(compose(overrides=overrides).config, tmp_path)
    found = weight_range(tmp_path)
    assert found == (pytest.approx(expected) if expected else None)
