"""Read the unit behind a number, so that two spellings of a unit are equal and a number word is never taken for one."""

from __future__ import annotations

import re
from collections import Counter

# Spellings of one unit; the first is its name. One-letter symbols are compared with their case: S is not s.
_SPELLINGS = (
    "m meter metre", "cm centimeter centimetre", "mm millimeter millimetre", "km kilometer kilometre", "nm nanometer nanometre",
    "in inch inche", "ft foot feet", "yd yard", "mi mile", "s second sec", "ms millisecond", "min minute", "h hour hr", "day",
    "week", "month", "year yr", "g gram", "kg kilogram", "mg milligram", "lb pound lbs", "oz ounce", "t ton tonne",
    "L l liter litre", "mL ml milliliter millilitre", "gal gallon", "dollar usd buck", "cent", "euro eur", "gbp", "yen jpy",
    "yuan rmb cny", "rupee inr", "degree deg", "radian rad",
    "unit", "Hz hertz", "angstrom å Å", "am", "pm", "J joule", "kJ kilojoule", "N newton", "W watt",
    "kW kilowatt", "V volt", "A ampere amp", "K kelvin", "Pa pascal", "kPa", "C coulomb", "F farad", "T tesla", "mol mole",
    "eV electronvolt", "erg", "cal calorie", "kcal kilocalorie", "ohm", "S siemens", "dyn dyne", "ly lightyear", "pc parsec",
    "AU au", "person people", "way",
)  # fmt: skip
_NAMES = {word: words.split()[0] for words in _SPELLINGS for word in words.split()}
_SYMBOLS = {word for word in _NAMES if len(word) == 1 or not word.islower()}
_PREFIXED = re.compile(r"(?:[kMGTmcnμµ]|\\mu)(?:m|s|g|L|N|J|W|V|A|K|Pa|Hz|eV|F|C|T|mol|ohm|pc)")
# Written without \text, one letter is a variable: `6m` keeps its m.
PLAIN = sorted(
    {word + plural for word in _NAMES if len(word) > 1 for plural in ("", "s")} - {"in", "as", "am", "pm", "au", "ms"},
    key=len,
    reverse=True,
)
SHORT_UNITS = sorted({word for word in _NAMES if len(word) == 2 and word.isascii()} - {"as", "au"})
"""Two letters that are a unit behind a space; others are a product."""
PLAIN_RATIO = r"(?:km|cm|mm|m|ft|mi|kg|g|J|N|W)/(?:s|sec|min|hr|h|km|cm|mm|m|ft|kg|g|L)(?![a-zA-Z])"
"""`9.8 m/s^2` is not a formula."""

MULTIPLIERS = {
    "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12,
}  # fmt: skip
# Words that change a value, or say that it is not the answer.
_NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty half halves third thirds "
    "fourth fourths quarter quarters fifth fifths sixth sixths seventh sevenths eighth eighths ninth ninths tenth tenths "
    "hundredth hundredths double twice thrice triple percent infinity"
)
_OPERATIONS = (
    "squared cubed factorial over plus minus times less more than root mod modulo base by divided multiplied and or not but if "
    "is are was maybe perhaps either no none to with without where when for other others another answer answers about "
    "approximately approx approximate around roughly nearly almost circa estimate estimated between least most except also "
    "possibly wrong correct solution solutions"
)
_NOT_UNITS = frozenset(f"{_NUMBER_WORDS} {_OPERATIONS}".split(" ")) | MULTIPLIERS.keys()
_WORD = r"\\mu ?[a-zA-Z]*|\\Omega|[^\W\d_](?:\.[^\W\d_])+(?![^\W\d_])|[^\W\d_]+"
_TOKEN = re.compile(
    rf"(?P<word>{_WORD})\.?(?P<power>\^\{{?-?[0-9]\}}?|(?<=[a-zA-Z])[23](?![0-9]))?|(?P<slash>/)|\s+|[().·*-]|\\cdot ?"
    r"|(?P<other>.)"
)
_AREA = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_MAX_WORDS, _MAX_CHARS = 5, 80
_CHINESE_NUMERALS = re.compile("[〇零一二三四五六七八九十百千万亿兆]")
Unit = tuple[tuple[str, int], ...]
"""Names with their powers, sorted: `m/s^2` is (("m", 1), ("s", -2))."""


def read_unit(text: str, spaced: bool = True) -> Unit | None:
    r"""Return the unit that `text` writes, or None if it is not a unit.

    Unknown lower-case words are a unit ("red apples"), but not number words and words of operations ("million", "squared").

    Args:
        text: what stands behind a value, without ``\text``, such as ``m/s^2``, ``square inches`` or ``p.m.``.
        spaced: a space stands in front; without one, capital `K` is thousands.
    """
    tokens = list(_TOKEN.finditer(text)) if len(text) <= _MAX_CHARS else []
    words = [token["word"] for token in tokens if token["word"]]
    if not 0 < len(words) <= _MAX_WORDS or any(token["other"] for token in tokens) or _CHINESE_NUMERALS.search(text):
        return None
    powers: Counter[str] = Counter()
    sign, area = 1, 0
    for token in tokens:
        word = token["word"]
        if token["slash"] or (word and word.lower() == "per"):
            sign = -1
        elif word and word.lower() in _AREA and len(words) > 1:
            area = _AREA[word.lower()]
        elif word:
            name = _unit_name(word, spaced)
            if name is None:
                return None
            power = area or int((token["power"] or "1").strip("^{}"))
            powers.update({"mi": sign, "h": -sign} if name == "mph" else {name: sign * power})
            area = 0
    return tuple(sorted(powers.items())) if powers else None


def _unit_name(word: str, spaced: bool) -> str | None:
    """Return the name of a known unit, or the singular of an unknown lower-case word; None for anything else."""
    compact = word.replace(".", "").replace(" ", "")
    lower = compact.lower()
    if lower in ("am", "pm", "mph"):
        return lower
    if lower in _NOT_UNITS:
        return None
    if compact in _SYMBOLS:
        return _NAMES[compact] if spaced or compact != "K" else None
    for known in (lower, lower.removesuffix("s")):
        if known in _NAMES and known not in _SYMBOLS:
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
