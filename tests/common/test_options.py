"""Command-line flags from the fields of a dataclass."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.common.options import command_line, parse_options


@dataclass(frozen=True, kw_only=True)
class Base:
    """What all have.

    Args:
        out: where the files go.
        limit: at most so many.
    """

    out: Path
    limit: int | None = None

    def __post_init__(self) -> None:
        limited = self.limit is None or self.limit > 0
        raise_invalid([] if limited else [f"limit is {self.limit}; ask for 1", "and more"])


@dataclass(frozen=True, kw_only=True)
class Own(Base):
    """What one has.

    Args:
        people: sizes of puzzles.
        sets: which ones.
        how: the way.
        force: anyway.
    """

    people: tuple[int, ...] = ()
    sets: tuple[str, ...] | None = None
    how: Literal["slow", "fast"] = "slow"
    force: bool = False


def parse(words, **arguments):
    return parse_options(Own, "prog", "What it does.\n\n  prog --out x", words.split(), **arguments)


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


def test_a_field_can_be_positional():
    assert parse("3 4 --out x", positional=["people"]).people == (3, 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--limit 3", "missing: --out PATH where the files go"),
        ("--out x --limit many", "--limit many does not fit; wanted is .*at most so many"),
        ("--out x --people 3 x --force", "--people 3 x does not fit"),
        ("--out x --limit", "--limit"),
        ("--out x --how sideways", "slow"),
        ("--out x --poeple 3", "--poeple 3 is no option; did you mean --people"),
        ("--out x stray", "stray is no option; options are --out, --limit, --people"),
        ("stray", "missing: --out.*stray is no option"),
    ],
)
def test_words_that_are_no_options_are_one_line(words, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse(words)
    assert "\n" not in str(caught.value)


def test_what_the_class_refuses_comes_as_it_says_it():
    with pytest.raises(ValueError, match=r"^2 problems:\n- limit is 0; ask for 1\n- and more$"):
        parse("--out x --limit 0")


def test_help_has_the_description_and_what_every_field_means(capsys):
    with pytest.raises(SystemExit) as caught:
        parse("--help")
    shown = capsys.readouterr().out
    assert caught.value.code == 0
    for text in ("What it does.\n", "\n  prog --out x\n", "where the files go", "at most so many", "sizes of puzzles"):
        assert text in shown


def test_words_with_an_equals_sign_are_of_the_rest_even_behind_an_option_of_several_words():
    @dataclass(frozen=True)
    class Study:
        """A study.

        Args:
            overrides: the rest.
            arms: some.
        """

        overrides: tuple[str, ...] = ()
        arms: tuple[str, ...] = ()

    words = ["a=1", "--arms", "grpo", "tr_grpo", "seeds=[0]", "b.c=2"]
    parsed = parse_options(Study, "prog", argv=words, rest="overrides")
    assert parsed == Study(overrides=("a=1", "seeds=[0]", "b.c=2"), arms=("grpo", "tr_grpo"))
