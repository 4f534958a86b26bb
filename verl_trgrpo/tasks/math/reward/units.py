r"""Units behind a value, such as `\text{ cm}^2`, `^\circ` or ` dollars`."""

import re

_SPELLINGS = (
    "cm centimeter centimetre", "mm millimeter millimetre", "km kilometer kilometre", "m meter metre", "inch inches in",
    "foot feet ft", "yard yd", "mile", "second sec s", "ms", "minute min", "hour hr h", "day", "week", "month", "year yr",
    "kg kilogram", "gram g", "pound lb", "liter litre l", "dollar usd", "cent", "euro eur", "degree deg", "radian rad",
    "unit", "mph mileperhour mile/hour", "hz hertz", "percent", "angstrom",
)  # fmt: skip
_SAME = {word: words.split()[0] for words in _SPELLINGS for word in words.split()}
# One letter without \text is a variable, so `6m` keeps its m.
_PLAIN = sorted({word + plural for word in _SAME if len(word) > 1 for plural in ("", "s")})
_RATIO = (
    r"(?:km|cm|mm|m|ft|mi|kg|g|J|N|W)/(?:s|sec|min|hr|h|km|cm|mm|m|ft|kg|g|L)(?![a-zA-Z])"  # 9.8 m/s^2 is no formula
)
_POWER = r"(?:\^(?:-?[0-9]|\{-?[0-9]\}))?"
_SUFFIX = re.compile(
    rf"(?P<value>.*?[^\s\\=+*/^_<>(,-])(?:(?P<degree>\^\\circ ?(?:\\text\{{[CF]\}}|[CF](?![a-zA-Z]))?)"
    rf"|(?P<text>(?:\\text\{{[^{{}}0-9,;=<>\\]{{1,40}}\}}{_POWER})+)"
    rf"|(?<=[0-9}}) ])(?P<plain>(?:{_RATIO}|(?i:{'|'.join(_PLAIN)})){_POWER}))",
    re.DOTALL,
)
_SENTENCE = re.compile(r"\b(?:or|and|not|but|if|is|are|maybe|either|no|to|with|where|when|for)\b", re.IGNORECASE)


def split_unit(text: str) -> tuple[str, str | None]:
    """Return the value and the unit in one spelling, or the text and None if it ends without a unit.

    A unit of unknown words counts as a unit too ("12 apples"), but a text that reads like a sentence does not.
    """
    match = _SUFFIX.fullmatch(text)
    if match is None:
        return text, None
    if match["degree"]:
        scale = re.sub(r"[^CF]", "", match["degree"].replace(r"\circ", ""))
        return match["value"], "degree" + scale
    unit = match["text"] or match["plain"]
    if _SENTENCE.search(unit):
        return text, None
    return match["value"], _spell(unit)


def _spell(unit: str) -> str:
    words = re.findall(r"[a-zA-Z/]+|\^\{?-?[0-9]", re.sub(r"\\text", "", unit))
    return " ".join(_singular(word.lower()) if word[0] != "^" else "^" + word.strip("^{") for word in words)


def _singular(word: str) -> str:
    word = _SAME.get(word, word)
    if len(word) > 2 and word.endswith("s"):
        word = word[:-1]
    return _SAME.get(word, word)
