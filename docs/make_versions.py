"""Run the tests that depend on veRL on other releases of it, and put the result into docs/versions.md.

examples, from a checkout:
  make canary                                 the oldest supported release and the newest of the package index
  python docs/make_versions.py 0.9.1 0.9.2    these

Each release gets a fresh environment in build/canary, which has that release of verl, without its dependencies, before the
packages of the environment that runs this script. What verl itself asks for and does not find there is named in the table.

Exit code: 0 all tests passed, 1 some did not.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from xml.etree import ElementTree

from make_results import DOCS, fill

from verl_trgrpo.common.text import markdown_table

OLDEST = "0.9.1"
# Core mathematics against its formulas, losses against veRL's, composition of configurations and recipes, checks of a run.
TESTS = (
    "core",
    "verl_plugin",
    "runs/test_compose.py",
    "checks",
    "recipes",
    "tasks/search_qa",
)
# Asked in the new environment: what verl requires and does not find.
CONFLICTS = """
from importlib.metadata import PackageNotFoundError, requires, version
from packaging.requirements import Requirement
for requirement in map(Requirement, requires("verl")):
    if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
        continue
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        found = "none"
    if found == "none" or not requirement.specifier.contains(found, prereleases=True):
        print(f"{requirement.name}{requirement.specifier} (here {found})")
"""


def newest() -> str:
    """Return the newest release of verl that the package index has."""
    words = [sys.executable, "-m", "pip", "index", "versions", "verl"]
    found = re.match(r"verl \((.+?)\)", subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    if found is None:
        raise ValueError("the package index has no verl")
    return found[1]


def environment(version: str) -> Path:
    """Make an environment with this release of verl; returns its Python."""
    directory = DOCS.parent / "build" / "canary" / version
    venv.create(directory, clear=True, with_pip=False)
    python = directory / "bin" / "python"
    packages = next(directory.glob("lib/python*/site-packages"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages)]
    subprocess.run([*pip, f"verl=={version}"], check=True)
    # What the environment does not have itself comes from this one.
    (packages / "rest.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    command = python.with_name("verl-trgrpo")
    command.write_text(f'#!/bin/sh\nexec {python} -m verl_trgrpo "$@"\n')
    command.chmod(0o755)
    return python


def try_version(version: str) -> tuple[list[str], bool]:
    """Test one release; returns its row of the table and whether all is well."""
    python = environment(version)
    report = python.parents[1] / "tests.xml"
    tests = [str(DOCS.parent / "tests" / name) for name in TESTS]
    words = [
        str(python),
        "-m",
        "pytest",
        "-n",
        "auto",
        "--dist",
        "loadfile",
        "-p",
        "no:cacheprovider",
        f"--junit-xml={report}",
        *tests,
    ]
    code = subprocess.run(words, check=False, cwd=DOCS.parent).returncode
    suite = next(ElementTree.parse(report).iter("testsuite"))
    total, failures, errors, skipped = (int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped"))
    failed = failures + errors
    asked = subprocess.run([str(python), "-c", CONFLICTS], check=True, capture_output=True, text=True)
    missing = ", ".join(asked.stdout.splitlines()) or "nothing"
    today = datetime.date.today().isoformat()
    commit = subprocess.run(
        ["git", "rev-parse", "--short=9", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    return [version, str(total - failed - skipped), str(failed), missing, today, commit], code == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", help=f"releases of verl; {OLDEST} and the newest if left out")
    results = [try_version(version) for version in parser.parse_args().versions or sorted({OLDEST, newest()})]
    head = ["verl", "tests passed", "failed", "required by it, and not here", "tried on", "commit"]
    table = markdown_table([row for row, _ in results], head)
    print(table)
    fill(DOCS / "versions.md", {"canary": lambda: table})
    return int(not all(well for _, well in results))


if __name__ == "__main__":
    sys.exit(main())
