"""Pictures and records of the documents can be made again: a table names the program of each, and the program is there."""

import re
import shlex
from pathlib import Path

import pytest

from verl_trgrpo.common.text import COMMAND_WORDS

ROOT = Path(__file__).parents[2]
PICTURES = {".png", ".svg", ".jpg", ".jpeg", ".gif", ".webp", ".pdf"}


def made_things(root):
    """Pictures beside sources and pages, and records beside the pages, by their paths in the repository."""
    folders = ("docs", "examples", "recipes", "studies", "benchmarks", "verl_trgrpo", ".github")
    files = [*root.glob("*"), *(path for folder in folders for path in (root / folder).rglob("*"))]
    names = {path.relative_to(root).as_posix() for path in files if path.is_file()}
    return {name for name in names if Path(name).suffix in PICTURES or name.startswith("docs/measurements/")}


def makers():
    """The first command of each file's row, by the file."""
    section = (ROOT / "docs/testing.md").read_text().partition("## Pictures and records")[2].partition("\n## ")[0]
    found = {}
    for files, made_by in re.findall(r"^\| (`.*?) \| (.*?) \|$", section, re.MULTILINE):
        found |= dict.fromkeys(re.findall(r"`([^`]+)`", files), re.findall(r"`([^`]+)`", made_by)[0])
    return found


def program_of(command):
    """What a command runs: a file of the repository, a target of make or a command of verl-trgrpo; None for anything else."""
    match shlex.split(command):
        case ["python", "-m", module, *_] if (found := ROOT / f"{module.replace('.', '/')}.py").is_file():
            return found
        case ["python", name, *_] if (ROOT / name).is_file():
            return ROOT / name
        case ["make", target, *_] if f"\n{target}:" in (ROOT / "Makefile").read_text():
            return target
        case ["verl-trgrpo", word, *_] if word in COMMAND_WORDS:
            return word
    return None


def test_every_picture_and_record_has_a_maker():
    assert made_things(ROOT) == makers().keys()


@pytest.mark.parametrize("file", makers())
def test_its_maker_is_there(file):
    program = program_of(makers()[file])
    assert program, f"{makers()[file]} runs nothing of this repository"
    if isinstance(program, Path) and Path(file).suffix in PICTURES:
        assert Path(file).name in program.read_text(), "the program writes another file"


def test_a_picture_without_a_maker_is_seen(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/new.svg").touch()
    assert made_things(tmp_path) - makers().keys() == {"docs/new.svg"}
    assert program_of("python docs/nowhere.py") is program_of("make nothing") is None


def test_pages_show_pictures_of_the_repository():
    """A picture on a page is one of the table, so that it can be made again; badges of a service are links."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "studies").rglob("*.md")]:
        for target in re.findall(r"!\[[^\]]*\]\((?!https?:)([^)]+)\)", page.read_text()):
            assert (page.parent / target).resolve().relative_to(ROOT).as_posix() in makers()
