"""`escape_controls`: untrusted data cannot send terminal escape sequences."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from verl_trgrpo.common.text import escape_controls

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
