"""Command-line options from the fields of a dataclass, and exit codes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import tyro

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.common.options import command_line, exit_code, parse_options


@dataclass(frozen=True, kw_only=True)
class Base:
    """Options of all programs.

    Args:
        out: directory for the files.
        limit: maximum number of rows.
    """

    out: Path
    limit: int | None = None

    def __post_init__(self) -> None:
        limited = self.limit is None or self.limit > 0
        raise_invalid([] if limited else [f"limit={self.limit} is too small", "second problem"])


@dataclass(frozen=True, kw_only=True)
class Own(Base):
    """Options of one program.

    Args:
        people: sizes of puzzles.
        sets: names of sets.
        how: speed.
        force: replace files.
        overrides: Hydra overrides.
    """

    people: tuple[int, ...] = ()
    sets: tuple[str, ...] | None = None
    how: Literal["slow", "fast"] = "slow"
    force: bool = False
    overrides: tyro.conf.Positional[tuple[str, ...]] = ()


def parse(words):
    return parse_options(Own, "prog", "Do it.\n\nexamples:\n  prog --out x", words.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--out x", Own(out=Path("x"))),
        ("--out x --limit 3 --people 3 4 --how fast --force", Own(
            out=Path("x"), limit=3, people=(3, 4), how="fast", force=True)),
        ("--out x --sets", Own(out=Path("x"), sets=())),
    ],
)  # fmt: skip
def test_words_become_options_and_options_words(words, expected):
    assert parse(words) == expected
    assert command_line("python x.py", expected) == ["python", "x.py", *words.split()]


@pytest.mark.parametrize(
    "words",
    [
        "--out x --force a.b=c +d=[1,2] ~e",
        "a.b=c +d=[1,2] ~e --out x --force",
        "--out x --force --people 3 -- a.b=c +d=[1,2] ~e",
    ],
)
def test_overrides_are_the_positional_words_before_or_after_the_flags(words):
    assert parse(words).overrides == ("a.b=c", "+d=[1,2]", "~e")


def test_all_problems_that_the_class_finds_are_printed_line_by_line(capsys):
    assert exit_code(lambda: parse("--out x --limit 0") and 0) == 2
    assert capsys.readouterr().err == "error: 2 problems:\n- limit=0 is too small\n- second problem\n"


def test_help_has_the_description_and_the_docstrings_of_class_and_base(capsys):
    assert exit_code(lambda: parse("--help") and 0) == 0
    shown = capsys.readouterr().out
    for text in ("Do it.\n\nexamples:\n  prog --out x\n", "directory for the files", "sizes of puzzles"):
        assert text in shown


def test_a_class_without_fields_is_parsed_as_well():
    @dataclass(frozen=True)
    class Nothing:
        """No options."""

    assert parse_options(Nothing, "prog", argv=[]) == Nothing()
