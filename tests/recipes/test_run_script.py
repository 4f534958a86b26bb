"""The launcher script, run for real up to where training would start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from verl_trgrpo.cli.main import main

SCRIPT = Path(__file__).parents[2] / "recipes" / "run.sh"
PUZZLES = "knights_and_knaves/qwen2.5-3b-instruct"


def run(*arguments, cwd=None, **variables):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name not in ("NNODES", "NODE_RANK", "HEAD_IP")}
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        cwd=cwd,
        env=environment | {"PATH": path} | variables,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "variables", "named"),
    [
        ([], {}, "deepscaler/"),
        (["knights_and_knaves/llama"], {}, "knights_and_knaves/llama"),
        (["knights_and_knaves/base"], {}, "knights_and_knaves/base"),
        ([PUZZLES, "--dryrun"], {}, "--dryrun"),
        ([PUZZLES, "grpo"], {}, "grpo"),
        ([PUZZLES], {"NNODES": "2"}, "HEAD_IP"),
        ([PUZZLES], {"NNODES": "two"}, "NNODES=two"),
        ([PUZZLES], {"NNODES": "2", "NODE_RANK": "2", "HEAD_IP": "10.0.0.1"}, "NODE_RANK=2"),
        ([PUZZLES], {"PATH": "/usr/bin:/bin"}, "verl-trgrpo"),
    ],
)
def test_wrong_input_is_named_in_one_line(arguments, variables, named):
    result = run(*arguments, **variables)
    assert result.returncode == 2
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and named in errors[0]


@pytest.fixture
def calls(tmp_path):
    """Stands for the program in ``PATH=tmp_path``: writes the words of each call into a line, and fails."""
    command = tmp_path / "verl-trgrpo"
    command.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexit 1\n')
    command.chmod(0o755)
    return tmp_path / "calls"


def test_a_dry_run_shows_configuration_steps_and_problems_and_starts_nothing(calls, tmp_path, monkeypatch, capsys):
    data = "data.train_files=/nowhere/kk/train.parquet"
    path = f"{tmp_path}:/usr/bin:/bin"
    run(PUZZLES, "--dry-run", "algorithm=dapo_clip", data, PATH=path, NNODES="2", HEAD_IP="10.0.0.1")
    [words] = calls.read_text().splitlines()
    monkeypatch.chdir(SCRIPT.parents[1])
    assert main(words.split()) == 1
    shown = capsys.readouterr().out
    for part in ("clip_ratio_high: 0.28  (veRL: 0.2)", "nnodes: 2", "steps: ", data):
        assert part in shown, part


def test_a_run_whose_check_fails_is_not_started(calls, tmp_path):
    assert run(PUZZLES, PATH=f"{tmp_path}:/usr/bin:/bin").returncode == 1
    [words] = calls.read_text().splitlines()
    assert words.startswith("validate ")
