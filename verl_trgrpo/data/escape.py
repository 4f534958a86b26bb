"""Text of a data file for a terminal, which obeys what it is sent: all but plain characters is escaped."""

import unicodedata

# Control, format (direction marks among them), surrogate, private, line and paragraph separators.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def escape(text: str) -> str:
    """Return `text` with every character that could act on a terminal written as in Python (`\\x1b`), but for line breaks
    and tabs."""
    return "".join(
        char.encode("unicode_escape", "surrogatepass").decode("ascii")
        if char not in "\n\t" and unicodedata.category(char) in _ESCAPED
        else char
        for char in text
    )
