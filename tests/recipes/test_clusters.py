"""Files that start recipes on clusters: what each would run, with stand-ins for the cluster's own programs."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

from tests.waiting import HANGS
from verl_trgrpo.runs.compose import compose

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "recipes/clusters"
SKYPILOT, KUBERAY = (yaml.safe_load((FOLDER / name).read_text()) for name in ("skypilot.yml", "kuberay.yml"))


@pytest.fixture
def repository(tmp_path):
    """A directory in which run.sh writes what it gets, one word a line, and whose bin has the programs of a cluster."""
    programs = {
        "bin/scontrol": 'printf "node-a\\nnode-b\\n"',
        "bin/getent": '[ "$*" = "ahostsv4 node-a" ] && echo "10.0.0.7 STREAM node-a"',
        # Slurm 22.05 and later: a step has one CPU unless its own option says more
        "bin/srun": '[[ $1 == --cpus-per-task=32 ]] && shift || exit 1; for rank in 0 1; do SLURM_NODEID=$rank "$@"; done',
        "recipes/run.sh": 'printf "%s\\n" "$NNODES" "$NODE_RANK" "$HEAD_IP" "$@" >> calls',
        ".venv/bin/activate": "",
    }
    for name, text in programs.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    return tmp_path


def calls(repository, command, **variables):
    path = {"PATH": f"{repository / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(command, cwd=repository, env=path | variables, check=True, capture_output=True, timeout=HANGS)
    return (repository / "calls").read_text().splitlines()


@pytest.mark.parametrize("words", [[], ["search_qa/qwen2.5-3b", "algorithm=grpo", "trainer.experiment_name=a b"]])
def test_slurm_starts_each_node_with_its_rank(repository, words):
    given = words or ["deepscaler/qwen2.5-7b", "algorithm=tr_grpo"]
    variables = {"SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_CPUS_PER_TASK": "32"}
    found = calls(repository, ["bash", str(FOLDER / "slurm.sh"), *words], **variables)
    assert found == ["2", "0", "10.0.0.7", *given, "2", "1", "10.0.0.7", *given]


def test_skypilot_starts_a_node_with_its_rank(repository):
    variables = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.8"}
    found = calls(repository, ["bash", "-c", SKYPILOT["run"]], **variables, **SKYPILOT["envs"])
    assert found == ["2", "1", "10.0.0.7", SKYPILOT["envs"]["RECIPE"], "--build-data", SKYPILOT["envs"]["OVERRIDES"]]
    subprocess.run(["bash", "-n", "-c", SKYPILOT["setup"]], check=True)


def test_skypilot_s_fields_are_of_its_format():
    known = {"name", "workdir", "num_nodes", "resources", "envs", "secrets", "file_mounts", "setup", "run"}
    assert SKYPILOT.keys() <= known and (ROOT / f"recipes/{SKYPILOT['envs']['RECIPE']}.yaml").is_file()


def test_kuberay_s_operator_gets_the_version_of_ray_that_its_token_needs():
    """KubeRay's validation refuses ``authOptions`` without a version, or with one before 2.52."""
    cluster = KUBERAY["spec"]["rayClusterSpec"]
    [locked] = re.findall(r"^ray(?:\[.*\])?==(\S+)", (ROOT / "requirements/cpu.txt").read_text(), re.MULTILINE)
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["rayVersion"] == locked and Version(locked) >= Version("2.52")


def test_kuberay_s_machines_are_those_of_the_run():
    _, _, line = shlex.split(KUBERAY["spec"]["entrypoint"])
    program, command, recipe, *overrides = shlex.split(re.sub(r"^cd /work && exec ", "", line))
    assert [program, command] == ["verl-trgrpo", "train"]
    trainer = compose(str(ROOT / recipe), overrides).config.trainer
    cluster = KUBERAY["spec"]["rayClusterSpec"]
    groups = [(1, cluster["headGroupSpec"]), *((each["replicas"], each) for each in cluster["workerGroupSpecs"])]
    assert sum(count for count, _ in groups) == trainer.nnodes
    for _, group in groups:
        [container] = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == trainer.n_gpus_per_node
        declared = {volume["name"] for volume in group["template"]["spec"]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == declared
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {f"/work/{name}" for name in ("data", "runs", "models")} | {"/dev/shm"} == mounts
