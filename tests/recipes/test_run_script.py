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


@pytest.fixture
def cluster(tmp_path):
    """A directory of stand-ins for `ray`, the training and the wait for machines; each adds its calls to ``calls``."""
    record = f'echo "$(basename "$0") $* RAY_ADDRESS=$RAY_ADDRESS" >> {tmp_path}/calls'
    programs = {
        "ray": f"""case $1 in
            get-auth-token) ;;
            start)
                {record}
                case $* in
                    *--head*) trap 'echo "head ended" >> {tmp_path}/calls; exit' TERM; while :; do sleep 0.1; done ;;
                    *) n=$(($(cat {tmp_path}/tries) - 1)); echo $n > {tmp_path}/tries; exit $((n > 0)) ;;
                esac ;;
            *) {record} ;;
        esac""",
        "python": f"""{record}; cat >/dev/null
            until grep -q -e --head {tmp_path}/calls; do sleep 0.1; done; exit "$JOINED" """,
        "verl-trgrpo": f'{record}; [ "$1" = validate ] || exit "$TRAINED"',
        "sleep": "exec /bin/sleep 0.1",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def nodes(cluster, **variables):
    """The exit code of one node's script, its messages, and the calls."""
    path = {"PATH": f"{cluster}:/usr/bin:/bin", "NNODES": "2", "HEAD_IP": "10.0.0.7", "RAY_ADDRESS": ""}
    result = run(PUZZLES, **path | variables)
    calls = cluster / "calls"
    return result.returncode, result.stderr, calls.read_text().splitlines() if calls.exists() else []


@pytest.mark.parametrize("code", [0, 1, 130])
def test_the_head_trains_on_its_cluster_and_ends_its_own_node_alone(cluster, code):
    found, _, calls = nodes(cluster, JOINED="0", TRAINED=str(code))
    assert found == code
    assert calls[-1] == "head ended" and not any(call.startswith("ray stop") for call in calls)
    [training] = [call for call in calls if call.startswith("verl-trgrpo train")]
    assert "trainer.nnodes=2" in training and training.endswith("RAY_ADDRESS=10.0.0.7:6379")


def test_a_head_whose_machines_do_not_join_trains_nothing(cluster):
    found, messages, calls = nodes(cluster, JOINED="1", TRAINED="0", JOIN_TIMEOUT="7")
    assert found == 2 and "error: not all 2 machines joined 10.0.0.7:6379 in 7 s" in messages
    assert calls[-1] == "head ended" and not any(call.startswith("verl-trgrpo train") for call in calls)


@pytest.mark.parametrize(("tries", "limit", "code"), [("3", "600", 0), ("1", "0", 2)])
def test_another_machine_tries_until_the_head_is_there_or_time_is_up(cluster, tries, limit, code):
    (cluster / "tries").write_text(tries)
    found, messages, calls = nodes(cluster, NODE_RANK="1", JOIN_TIMEOUT=limit)
    assert found == code and ("no Ray head at 10.0.0.7:6379" in messages) == bool(code)
    assert [call.split(" RAY_")[0] for call in calls] == ["ray start --address=10.0.0.7:6379 --block"] * (
        0 if code else 3
    )
