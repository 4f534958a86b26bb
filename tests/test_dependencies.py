"""The package's requirements fit those of veRL, so that an installation beside veRL changes none of its packages.

The whole resolution, of every package that veRL brings, is ``python requirements/gpu_dry_run.py``. The image, the workflows and
the hooks agree with the package's metadata and let nothing unpinned run.
"""

import importlib.metadata
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from verl_trgrpo.common.extras import EXTRA_OF

ROOT = Path(__file__).parents[1]


def requirements(distribution: str, *extras: str) -> list[Requirement]:
    """Return the requirements of an installed distribution, with those of `extras`."""
    found = map(Requirement, importlib.metadata.requires(distribution) or [])
    environments = [{"extra": extra} for extra in ("", *extras)]
    return [
        one
        for one in found
        if one.marker is None or any(one.marker.evaluate(environment) for environment in environments)
    ]


EXTRAS = ("verl", "rewards", "search", "reports", "small-lm")
OURS = [one for one in requirements("verl-trgrpo", "core", *EXTRAS) if one.specifier]
LOCKED = {
    canonicalize_name(name): version
    for name, version in re.findall(r"^([\w.-]+)(?:\[.*?\])?==(\S+)", (ROOT / "requirements/cpu.txt").read_text(), re.M)
}


@pytest.mark.parametrize("ours", OURS, ids=str)
def test_a_bound_is_no_higher_than_verl_s_own(ours):
    """The version that veRL pins, or the lowest that it admits, is one that this package takes."""
    name = canonicalize_name(ours.name)
    for theirs in requirements("verl", "verl-core", "vllm"):
        if canonicalize_name(theirs.name) == name:
            lowest = [bound.version for bound in theirs.specifier if bound.operator in ("==", ">=")]
            assert all(map(ours.specifier.contains, lowest)), f"verl: {theirs}"


@pytest.mark.parametrize("ours", OURS, ids=str)
def test_a_bound_is_no_higher_than_what_is_tested(ours):
    name = canonicalize_name(ours.name)
    tested = LOCKED.get(name) or Version(importlib.metadata.version(name)).public  # torch has an index of its own
    assert ours.specifier.contains(tested)


def test_all_is_every_extra_that_leaves_an_environment_as_it_is():
    declared = importlib.metadata.metadata("verl-trgrpo").get_all("Provides-Extra") or []
    assert {*EXTRA_OF.values()} <= {*declared}
    [everything] = [one for one in requirements("verl-trgrpo", "all") if one.name == "verl-trgrpo"]
    assert everything.extras == {*EXTRAS}
    assert requirements("verl-trgrpo") == []


def test_the_image_installs_what_the_extras_ask_for():
    """Packages named in the Dockerfile beside them would be forgotten when the extras change."""
    command = (ROOT / "Dockerfile").read_text().partition("pip install")[2].splitlines()[0]
    [wanted] = [word.strip('"') for word in command.split() if not word.startswith("-") and word != "/tmp/kept.txt"]
    place, _, extras = wanted.rstrip("]").partition("[")
    declared = importlib.metadata.metadata("verl-trgrpo").get_all("Provides-Extra") or []
    assert place == "/work" and {*extras.split(",")} <= {*declared}


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


def git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


# What a row of the table of releases says something about.
COVERED = (
    "verl_trgrpo/verl_plugin",
    "verl_trgrpo/checks",
    "verl_trgrpo/tasks/search_qa/loop.py",
    "verl_trgrpo/tasks/reward_manager.py",
)


def stale_rows(page: str) -> list[str]:
    """Return the releases in docs/versions.md that were tried before the last change of what the plugin uses of veRL."""
    block = page.partition("<!-- canary: begin -->")[2].partition("<!-- canary: end -->")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines() if line.startswith("|")
    ]
    return [row[0] for row in rows[2:] if git("log", "--format=%h", f"{row[-1]}..HEAD", "--", *COVERED)]


def test_the_oldest_declared_release_of_verl_is_the_one_that_is_tested_and_no_other_claim_has_aged():
    [declared] = [one for one in requirements("verl-trgrpo", "verl") if one.name == "verl"]
    tested = Version(importlib.metadata.version("verl"))
    oldest = min(Version(bound.version) for bound in declared.specifier if bound.operator == ">=")
    assert oldest == tested
    if not (ROOT / ".git").exists():
        pytest.skip("needs the history")
    assert stale_rows((ROOT / "docs" / "versions.md").read_text()) == []


def test_a_row_of_the_table_of_releases_ages():
    if not (ROOT / ".git").exists():
        pytest.skip("needs the history")
    last = git("log", "-1", "--format=%h", "--", *COVERED)
    table = "<!-- canary: begin -->\n| verl | commit |\n|---|---|\n| 1 | {} |\n| 2 | {} |\n<!-- canary: end -->"
    assert stale_rows(table.format(last, f"{last}~1")) == ["2"]
