"""Read the unit behind a number, so that two spellings of a unit are equal and a number word is never taken for one."""

from __future__ import annotations

import re

# Spellings of one unit; the first is its name. One-letter symbols are compared with their case: S is not s.
_SPELLINGS = (
    "m meter metre", "cm centimeter centimetre", "mm millimeter millimetre", "km kilometer kilometre", "nm nanometer nanometre",
    "in inch inche", "ft foot feet", "yd yard", "mi mile", "s second sec", "ms millisecond", "min minute", "h hour hr", "day",
    "week", "month", "year yr", "g gram", "kg kilogram", "mg milligram", "lb pound lbs", "oz ounce", "t ton tonne", "L l liter litre",
    "mL ml milliliter millilitre", "gal gallon", "dollar usd buck", "cent", "euro eur", "gbp", "yen jpy", "yuan rmb cny", "rupee inr",
    "degree deg", "radian rad", "unit", "Hz hertz", "angstrom å Å", "am", "pm", "J joule", "kJ kilojoule", "N newton", "W watt",
    "kW kilowatt", "V volt", "A ampere amp", "K kelvin", "Pa pascal", "kPa", "C coulomb", "F farad", "T tesla", "mol mole",
    "eV electronvolt", "erg", "cal calorie", "kcal kilocalorie", "ohm", "S siemens", "dyn dyne", "ly lightyear", "pc parsec",
    "AU au", "square", "cubic", "person people", "way",
)  # fmt: skip
_NAMES = {word: words.split()[0] for words in _SPELLINGS for word in words.split()}
_EXACT = {word for word in _NAMES if len(word) <= 2 or word in ("kPa", "mol")}
_PREFIXED = re.compile(r"(?:[kMGTmcnμµ]|\\mu)(?:m|s|g|L|N|J|W|V|A|K|Pa|Hz|eV|F|C|T|mol|ohm|pc)")
# Written without \text, one letter is a variable: `6m` keeps its m.
PLAIN = sorted(
    {word + plural for word in _NAMES if len(word) > 1 for plural in ("", "s")} - {"in", "as", "am", "pm", "au", "ms"},
    key=len,
    reverse=True,
)
PLAIN_RATIO = r"(?:km|cm|mm|m|ft|mi|kg|g|J|N|W)/(?:s|sec|min|hr|h|km|cm|mm|m|ft|kg|g|L)(?![a-zA-Z])"
"""`9.8 m/s^2` is not a formula."""

MULTIPLIERS = {
    "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12,
}  # fmt: skip
# Words that change a value, or say that it is not the answer.
_NOT_UNITS = (
    frozenset(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "twenty",
            "thirty",
            "forty",
            "fifty",
            "half",
            "halves",
            "third",
            "thirds",
            "fourth",
            "fourths",
            "quarter",
            "quarters",
            "fifth",
            "fifths",
            "sixth",
            "sixths",
            "seventh",
            "sevenths",
            "eighth",
            "eighths",
            "ninth",
            "ninths",
            "tenth",
            "tenths",
            "hundredth",
            "hundredths",
            "squared",
            "cubed",
            "factorial",
            "over",
            "plus",
            "minus",
            "times",
            "less",
            "more",
            "than",
            "root",
            "and",
            "or",
            "not",
            "but",
            "if",
            "is",
            "are",
            "was",
            "maybe",
            "perhaps",
            "either",
            "no",
            "none",
            "to",
            "with",
            "where",
            "when",
            "for",
            "other",
            "others",
            "another",
            "answer",
            "answers",
            "about",
            "approximately",
            "around",
            "between",
            "least",
            "most",
            "mod",
            "modulo",
            "base",
            "by",
            "divided",
            "multiplied",
            "double",
            "twice",
            "thrice",
            "triple",
            "percent",
            "except",
            "without",
            "also",
            "possibly",
            "wrong",
            "correct",
            "solution",
            "solutions",
            "infinity",
        ]
    )
    | MULTIPLIERS.keys()
)
_TOKEN = re.compile(
    r"/|(?P<word>\\mu ?[a-zA-Z]*|\\Omega|\\%|[^\W\d_](?:\.[^\W\d_])+(?![^\W\d_])|[^\W\d_]+)\.?(?P<power>\^(?:\{?-?[0-9]\}?)|(?<=[a-zA-Z])[23](?![0-9]))?|\s+|[().·*-]|\\cdot ?"
)
_AREA = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_MAX_WORDS = 5
_CHINESE_NUMERALS = re.compile("[〇零一二三四五六七八九十百千万亿兆]")
Unit = tuple[tuple[str, int], ...]
"""Names with their powers, sorted: `m/s^2` is (("m", 1), ("s", -2))."""


def read_unit(text: str, spaced: bool = True) -> Unit | None:
    r"""Return the unit that `text` writes, or None if it is not a unit.

    Unknown lower-case words are a unit ("red apples"), but not number words and words of operations ("million", "squared").

    Args:
        text: what stands behind a value, without ``\text``, such as ``m/s^2``, ``square inches`` or ``p.m.``.
        spaced: a space stands in front; without one, capital `K` and `M` are thousands and millions.
    """
    if _CHINESE_NUMERALS.search(text) or len(text) > 80:
        return None
    powers: dict[str, int] = {}
    sign, prefix, words, position = 1, 0, 0, 0
    for token in iter(lambda: _TOKEN.match(text, position), None):
        if token.end() == position:
            return None
        position = token.end()
        word = token["word"]
        if token[0] == "/" or (word and word.lower() == "per"):
            sign = -1
            continue
        if word is None:
            continue
        words += 1
        if word.lower() in _AREA and word != text:
            prefix = _AREA[word.lower()]
            continue
        name = _unit_name(word, spaced)
        if name is None or words > _MAX_WORDS:
            return None
        power = prefix or int((token["power"] or "1").strip("^{}"))
        for part, count in (("mi", 1), ("h", -1)) if name == "mph" else ((name, power),):
            powers[part] = powers.get(part, 0) + sign * count
        prefix = 0
    if position != len(text) or not powers:
        return None
    return tuple(sorted(powers.items()))


def _unit_name(word: str, spaced: bool) -> str | None:
    """Return the name of a known unit, or the singular of an unknown lower-case word; None for anything else."""
    compact = word.replace(".", "").replace(" ", "")
    lower = compact.lower()
    if lower in ("am", "pm"):
        return lower
    if lower in _NOT_UNITS:
        return None
    if compact in _EXACT and (spaced or compact not in ("K", "M")):
        return _NAMES[compact]
    if lower in ("mph", "kph", "kmh"):
        return lower
    for known in (lower, lower.removesuffix("s"), lower.removesuffix("es")):
        if (
            known in _NAMES
            and len(known) > 1
            and known not in _EXACT - {"in", "ft", "cm", "mm", "km", "kg", "hr", "lb", "yd"}
        ):
            return _NAMES[known]
    if _PREFIXED.fullmatch(compact):
        return compact.replace("\\mu", "μ").replace("µ", "μ")
    if len(compact) == 1 and compact.isascii():
        return None
    return lower.removesuffix("s") if compact == lower or not compact.isascii() else None


def multiplier(text: str) -> tuple[int, str] | None:
    """Return the factor and the rest of a text that begins with a number word such as ``million``."""
    word, _, rest = text.strip().partition(" ")
    factor = MULTIPLIERS.get(word.rstrip(".,"))
    return None if factor is None else (factor, rest)
