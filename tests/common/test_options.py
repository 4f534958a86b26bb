"""Command-line options from the fields of a dataclass, and exit codes."""

import unicodedata
from dataclasses import dataclass, make_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st

from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.common.options import Options, command_line, exit_code, parse_options
from verl_trgrpo.common.text import escape_controls
from verl_trgrpo.tasks.data_set import BuilderOptions


@dataclass(frozen=True, kw_only=True)
class Base(Options):
    """Options of all programs.

    Args:
        out: directory for the files.
        limit: maximum number of rows.
    """

    out: Path
    limit: Annotated[int | None, "[1, inf)"] = None

    def problems(self):
        return ["second problem"] if self.limit == 0 else []


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
    first = "limit=0 is out of range; give a number in [1, inf)"
    assert capsys.readouterr().err == f"error: 2 problems:\n- {first}\n- second problem\n"


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


def test_a_full_disk_has_a_remedy(capsys):
    def program():
        Path("/dev/full").write_text("x")
        return 0

    assert exit_code(program) == 2 and "free some space" in capsys.readouterr().err


def test_too_little_memory_is_a_message_and_no_message_has_a_password(capsys):
    def program(error):
        raise error

    assert (
        exit_code(partial(program, MemoryError())) == 1
        and exit_code(partial(program, ValueError("http://a:hidden@h"))) == 2
    )
    said = capsys.readouterr().err
    assert said.startswith("error: memory ran out; ") and "hidden" not in said and "Traceback" not in said


@dataclass(frozen=True)
class Section(Options):
    """A section of a configuration."""

    where = "section."
    share: Annotated[float, "(0, 1]"] = 0.5
    count: Annotated[int | None, "[1, inf)"] = None


def test_numbers_are_in_the_intervals_of_their_annotations():
    assert Section(share=1) == Section(1.0, None)
    with pytest.raises(InvalidInputError) as raised:
        Section(share=0.0, count=True)
    assert raised.value.messages == [
        "section.share=0.0 is out of range; give a number in (0, 1]",
        "section.count=True is not a number; give one in [1, inf)",
    ]
    with pytest.raises(InvalidInputError, match="share=None is not a number"):
        Section(share=None)


def test_an_inherited_option_is_annotated_in_the_module_of_its_class():
    # Its module does not have the name Path, with which the base is annotated.
    further = make_dataclass("Further", [("more", int, 1)], bases=(BuilderOptions,), frozen=True, kw_only=True)
    assert parse_options(further, "prog", argv=["--out", "x"]) == further(out=Path("x"))


HOSTILE = "\x1b]0;owned\x07 \x1b[2J \x9b31m \r over \u202e left \u2066 \x00 \x7f \u2028 \b\ufeff"


def test_hostile_text_is_printable():
    assert escape_controls(HOSTILE).isprintable() and r"\x1b]0;owned\x07" in escape_controls(HOSTILE)


@given(st.text())
def test_escaped_text_has_no_character_that_acts(text):
    acting = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    escaped = escape_controls(text)
    assert not [c for c in escaped if c not in "\n\t" and unicodedata.category(c) in acting]
    if text.isprintable():
        assert escaped == text


def test_help_shows_defaults_as_they_are_typed_and_nothing_for_empty_ones(capsys):
    fields = {"seed": (int, 0), "rate": (float, 0.5), "text": (str, "let's"), "names": (tuple[str, ...], ("a", "b"))}
    empty = {"none": (int | None, None), "list": (tuple[str, ...], ()), "blank": (str, ""), "flag": (bool, False)}
    options = make_dataclass("Made", [(name, kind, default) for name, (kind, default) in (fields | empty).items()])
    assert exit_code(lambda: bool(parse_options(options, "made", "Made.", ["--help"]))) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(f"(default: {default})" in shown for default in ("0", "0.5", "let's", "a b"))
    assert shown.count("(optional)") == len(empty)
