"""The launcher script, run for real up to where training would start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_script_is_sound_bash():
    assert subprocess.run(["bash", "-n", str(SCRIPT)], check=False).returncode == 0


def test_help_teaches():
    result = run("--help")
    assert result.returncode == 0
    for part in ("--dry-run", "--build-data", "NNODES, NODE_RANK, HEAD_IP", "algorithm=grpo"):
        assert part in result.stdout


@pytest.mark.parametrize(
    ("arguments", "variables", "part"),
    [
        (
            [],
            {},
            "no recipe given; there are: deepscaler/",
        ),
        (["knights_and_knaves/llama"], {}, "recipes/knights_and_knaves/llama.yaml is no recipe; there are: "),
        (["knights_and_knaves/base"], {}, "is no recipe"),
        (["compare/kk_tiny"], {}, "is no recipe"),
        ([PUZZLES, "--dryrun"], {}, "unknown option --dryrun"),
        ([PUZZLES, "grpo"], {}, "grpo is neither an override (key=value) nor an option"),
        ([PUZZLES], {"NNODES": "2"}, "NNODES=2 needs HEAD_IP"),
        ([PUZZLES], {"NNODES": "two"}, "NNODES=two is not a number"),
        ([PUZZLES], {"NNODES": "2", "NODE_RANK": "2", "HEAD_IP": "10.0.0.1"}, "NODE_RANK=2 is not one of 0 to 1"),
        ([PUZZLES], {"PATH": "/usr/bin:/bin"}, "verl-trgrpo is not on the path"),
    ],
)
def test_wrong_input_is_named_in_one_line(arguments, variables, part):
    result = run(*arguments, **variables)
    assert result.returncode == 2
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and part in errors[0]


def test_a_dry_run_shows_configuration_steps_and_problems_and_starts_nothing(tmp_path):
    data = "data.train_files=/nowhere/kk/train.parquet"
    result = run(PUZZLES, "--dry-run", "algorithm=dapo_clip", data, cwd=tmp_path, NNODES="2", HEAD_IP="10.0.0.1")
    assert result.returncode == 1
    for part in ("clip_ratio_high: 0.28  (veRL: 0.2)", "steps: ", data):
        assert part in result.stdout, part
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_check_fails_is_not_started(tmp_path):
    command = tmp_path / "verl-trgrpo"
    command.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/calls\nexit 1\n')
    command.chmod(0o755)
    assert run(PUZZLES, PATH=f"{tmp_path}:/usr/bin:/bin").returncode == 1
    assert (tmp_path / "calls").read_text() == "validate\n"
