"""The small contributions of CONTRIBUTING.md stay small: which files know a shaping, a rule or a format by its name."""

import re

import pytest

from tests.messages import modules, texts
from tests.scripts import ROOT
from verl_trgrpo.checks.rules import RULES
from verl_trgrpo.core import available_shapings
from verl_trgrpo.data.sources import FILE_TYPES

# A page of a measurement shows what there was on its day.
READ = ("verl_trgrpo/**/*.py", "verl_trgrpo/**/*.yaml", "tests/**/*.py", "docs/*.md", "*.md")


@pytest.fixture(scope="module")
def sources():
    """The text of each file by its place, with its place."""
    found = {path for pattern in READ for path in ROOT.glob(pattern) if path.is_file()}
    return {place: f"{place}\n{path.read_text()}" for path in found if (place := str(path.relative_to(ROOT)))}


def knowing(name, sources):
    return {place for place, text in sources.items() if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)}


def test_a_shaping_without_a_word_of_its_own_takes_four_files(sources):
    name = "binary_entropy"
    assert name in available_shapings()
    needed = {
        "verl_trgrpo/core/shapings.py", f"verl_trgrpo/config/shaping/{name}.yaml", "tests/core/test_shapings.py",
        "docs/shapings.md",
    }  # fmt: skip
    assert knowing(name, sources) - {"tests/test_contributions.py"} == needed


def test_a_rule_takes_two_files(sources):
    checks = {
        place: text for place, text in sources.items() if place.startswith(("verl_trgrpo/checks/", "tests/checks/"))
    }
    files = {name: {place for place, text in checks.items() if f'"{name}"' in text} for name in RULES}
    two = {"verl_trgrpo/checks/rules.py", "tests/checks/test_rules.py"}
    others = {name: found - two for name, found in files.items() if not two <= found or found - two}
    assert others == {}


def test_a_format_of_source_files_takes_one():
    for kind in {*FILE_TYPES} - {".json", ".jsonl", ".parquet"}:  # which other files have, too
        assert {place for place, tree in modules() if any(text == kind for _, text in texts(tree))} == {
            "data/sources.py"
        }
