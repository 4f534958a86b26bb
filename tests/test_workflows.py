"""The files for GitHub agree with the package's metadata and let nothing unpinned run."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_a_commit_and_permissions_are_given_one_by_one(path):
    text = path.read_text()
    uses = re.findall(r"uses: (\S+)( # v[\d.]+)?$", text, re.M)
    assert uses and len(uses) == text.count("uses:")
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) and version for action, version in uses)
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}


def test_ci_runs_the_fast_tests_on_every_python_that_the_package_declares():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    jobs = workflow["jobs"]["test"]["strategy"]["matrix"]["include"]
    declared = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert sorted(job["python"] for job in jobs if "test-fast" in job["targets"]) == sorted(declared)
    assert {"lint", "test-cluster"} <= {target for job in jobs for target in job["targets"].split()}


def test_pre_commit_has_the_linter_of_the_package():
    [pin] = re.findall(r'"(ruff==[\d.]+)"', (ROOT / "pyproject.toml").read_text())
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["additional_dependencies"] for hook in hooks] == [[pin], [pin]]
