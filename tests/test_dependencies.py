"""The package's requirements fit those of veRL, so that an installation beside veRL changes none of its packages.

The whole resolution, of every package that veRL brings, is ``python requirements/gpu_dry_run.py``.
"""

import importlib.metadata
import re
from pathlib import Path

import pytest
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
OURS = [one for one in requirements("verl-trgrpo", *EXTRAS) if one.specifier]
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
    own = {one.name for one in requirements("verl-trgrpo") if one.name != "verl-trgrpo"}
    assert own == {"torch", "numpy"}


def test_the_image_installs_what_the_extras_ask_for():
    """Packages named in the Dockerfile beside them would be forgotten when the extras change."""
    command = (ROOT / "Dockerfile").read_text().partition("pip install")[2].splitlines()[0]
    [wanted] = [word.strip('"') for word in command.split() if not word.startswith("-") and word != "/tmp/kept.txt"]
    place, _, extras = wanted.rstrip("]").partition("[")
    declared = importlib.metadata.metadata("verl-trgrpo").get_all("Provides-Extra") or []
    assert place == "/opt/verl-trgrpo" and {*extras.split(",")} <= {*declared}
