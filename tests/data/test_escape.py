"""A hostile file cannot drive the terminal."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from verl_trgrpo.data.escape import escape

HOSTILE = "\x1b]0;owned\x07 \x1b[2J \x9b31m \r over \u202e left \u2066 \x00 \x7f \u2028 \b\ufeff"


def test_hostile_text_is_printable():
    assert escape(HOSTILE).isprintable() and r"\x1b]0;owned\x07" in escape(HOSTILE)


@given(st.text())
def test_escaped_text_has_no_character_that_acts(text):
    acting = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    escaped = escape(text)
    assert not [c for c in escaped if c not in "\n\t" and unicodedata.category(c) in acting]
    if text.isprintable():
        assert escaped == text
