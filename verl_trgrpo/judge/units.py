"""Read the words behind a number: units and number words of closed lists, and nothing that is not on one of them.

Other words are kept apart, so that they count only where the ground truth or the question has them, too.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from functools import lru_cache

# Spellings of one unit; the first is its name. Behind `=`, what it is in another. Symbols with capitals and single letters are
# compared with their case: S is not s.
_SPELLINGS = (
    "m meter metre 米 м метр =1m", "cm centimeter centimetre 厘米 см =0.01m", "mm millimeter millimetre 毫米 мм =0.001m",
    "km kilometer kilometre 千米 公里 км =1000m", "nm nanometer nanometre", "in inch inche =0.0254m", "ft foot feet =0.3048m",
    "yd yard =0.9144m", "mi mile =1609.344m", "s second sec 秒 초 =1s", "ms millisecond =0.001s", "min minute 分钟 =60s",
    "h hour hr 小时 時間 시간 =3600s", "day 天 =86400s", "week =604800s", "month 个月", "year yr 年 岁", "g gram 克 =1g",
    "kg kilogram 千克 公斤 кг =1000g", "mg milligram =0.001g",
    "mcg microgram =0.000001g", "dm decimeter decimetre =0.1m", "lb pound lbs", "oz ounce", "t ton tonne 吨",
    "L l liter litre 升 =1L",
    "mL ml milliliter millilitre 毫升 =0.001L", "gal gallon", "quart =0.25gal", "pint =0.125gal", "cup",
    "tablespoon tbsp =3teaspoon", "teaspoon tsp =1teaspoon", "hectare", "acre", "grain", "dollar usd buck =1dollar",
    "cent =0.01dollar", "euro eur", "gbp", "yen jpy 円", "yuan rmb cny 元", "won 원", "rouble ruble руб", "rupee inr rs",
    "peso", "franc", "degree deg 度 =60arcminute", "arcminute =1arcminute", "radian rad", "Hz hertz",
    "angstrom å Å =0.0000000001m", "am", "pm =0.000000000001m",
    "J joule =1J", "kJ kilojoule =1000J", "N newton", "W watt =1W", "kW kilowatt =1000W", "V volt", "A ampere amp",
    "K kelvin", "Pa pascal =1Pa", "kPa =1000Pa", "C coulomb", "F farad", "T tesla", "mol mole", "eV electronvolt", "erg",
    "cal calorie", "kcal kilocalorie", "ohm", "S siemens", "dyn dyne", "ly lightyear", "pc parsec", "AU au",
    "atm atmosphere =101325Pa", "bar =100000Pa", "mbar millibar =100Pa", "torr", "mmHg", "psi", "Wb weber", "H henry henrie",
    "Bq becquerel", "Gy gray", "Sv sievert", "Ci curie", "lx lux", "lm lumen", "cd candela", "sr steradian", "Da dalton", "amu",
    "dB decibel", "bit =1bit", "byte =8bit", "kB kilobyte =8000bit", "MB megabyte =8000000bit", "GB gigabyte =8000000000bit",
    "TB terabyte", "KiB", "MiB", "GiB", "bps", "kbps", "Mbps", "Gbps", "rpm", "bpm", "ppm", "ppb", "cc =1mL", "hp horsepower",
    "Btu btu", "therm", "Wh =3600J", "kWh =3600000J", "MWh =3600000000J", "Ah", "mAh", "gauss", "poise", "knot",
    "degreeC celsius Celsius", "degreeF fahrenheit Fahrenheit",
    "nauticalmile =1852m", "fps", "rod",
    "furlong", "fathom", "carat =0.2g", "bushel", "barrel", "decade", "century centurie", "fortnight =1209600s",
    "person people 人 명",
)  # fmt: skip
# Words that only say that something is counted, one by one: a pair, a team or a box holds several.
_COUNTING = frozenset(
    ["unit", "way", "value", "solution", "answer", "number", "integer", "real", "possible", "distinct", "different",
    "total", "such", "positive", "root", "element", "item", "case", "of", "个", "個", "種", "种", "개", "штук",
    "student", "child", "boy", "girl", "man", "woman", "friend", "apple", "orange", "egg", "book", "page", "card",
    "ball", "marble", "coin", "ticket", "piece", "car", "member", "point", "vertex", "edge", "side", "triangle",
    "square", "line", "digit", "term", "factor", "divisor", "path", "step", "move", "cell", "word", "letter", "只",
    "tooth", "teeth", "mouse", "mice", "children", "men", "women", "quantum", "quanta", "photon", "electron", "atom",
    "molecule", "cycle", "revolution", "rotation", "turn", "次", "条", "本", "つ", "가지"]
)  # fmt: skip
_FACTORS: dict[str, tuple[Fraction, str]] = {}
_NAMES: dict[str, str] = {}
for _line in _SPELLINGS:
    _words, _, _factor = _line.partition(" =")
    _NAMES |= dict.fromkeys(_words.split(), _words.split()[0])
    if _match := re.fullmatch(r"([0-9.]+)([a-zA-Z]\w*)", _factor):  # 0.3048m
        _FACTORS[_words.split()[0]] = (Fraction(_match[1]), _match[2])
_SYMBOLS = {word for word in _NAMES if len(word) == 1 or not word.islower()}
_PREFIXES = {"n": -9, "μ": -6, "m": -3, "c": -2, "d": -1, "h": 2, "k": 3, "M": 6, "G": 9, "T": 12}
_PREFIXED = re.compile(r"(?:[kMGTmcdhnμµ]|\\mu)(?:m|s|g|L|N|J|W|V|A|K|Pa|Hz|eV|F|C|T|mol|ohm|pc)")  # \mum; GHz
SPACED_SYMBOLS = "mshgLNJWVAK"
"""One letter that is a unit behind a space, `6 m`; without one it is a factor, `6m`."""
PLAIN = sorted(
    {word + plural for word in _NAMES if len(word) > 1 and word.isascii() for plural in ("", "s")} - {"in", "as", "am",
    "pm", "au", "ms", "rs"},
    key=len,
    reverse=True,
)  # fmt: skip
SHORT_UNITS = sorted({word for word in _NAMES if len(word) == 2 and word.isascii()} - {"as", "au", "rs"})
"""Two letters that are a unit behind a space; others are a product."""
_PLAIN_RATIO = r"(?:km|cm|mm|m|ft|mi|kg|g|J|N|W)/(?:s|sec|min|hr|h|km|cm|mm|m|ft|kg|g|L)(?![a-zA-Z])"

DOLLAR = "＄"
"""Stands for `\\$`, a price, while `$` delimits formulas."""
CURRENCIES = {
    DOLLAR: "dollar", "元": "yuan", "€": "euro", "£": "gbp", "¥": "yen", "₹": "rupee", "₩": "won", "₽": "rouble",
}  # fmt: skip
MULTIPLIERS = {
    "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12, "lakh": 10**5,
    "crore": 10**7, "百": 100, "千": 1000, "万": 10**4, "萬": 10**4, "만": 10**4, "亿": 10**8, "億": 10**8, "억": 10**8,
}  # fmt: skip
_ONES = "one two three four five six seven eight nine"
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_PART_NAMES = "third fourth fifth sixth seventh eighth ninth tenth hundredth thousandth"
_DIGITS = "零一二三四五六七八九"
NUMBER_WORDS = {word: value for value, word in enumerate(["zero", *_ONES.split(), *_TEENS.split()])}
"""From 0 to 99: `seven`, `forty two`, 四十二."""
NUMBER_WORDS |= {
    " ".join(filter(None, [ten, one])): tens + ones
    for tens, ten in zip(range(20, 100, 10), _TENS.split(), strict=True)
    for ones, one in enumerate(["", *_ONES.split()])
}
NUMBER_WORDS |= {digit: value for value, digit in enumerate(_DIGITS)} | {"两": 2}
NUMBER_WORDS |= {
    f"{_DIGITS[tens] if tens > 1 else ''}十{_DIGITS[ones] if ones else ''}": 10 * tens + ones
    for tens in range(1, 10)
    for ones in range(10)
}
_PARTS = dict(zip(["half", "quarter", *_PART_NAMES.split()], [2, 4, *range(3, 11), 100, 1000], strict=True))
_PLURALS = {"halves": 2} | {f"{part}s": value for part, value in _PARTS.items() if part != "half"}
_OPERATIONS = (
    f"{' '.join([*_PARTS, *_PLURALS])} percent percentage infinity double doubled twice thrice "
    "triple tripled halved squared "
    "cubed squares cubes factorial over under plus minus times less more fewer than root mod modulo base by divided "
    "multiplied and or not but "
    "if is are was be maybe perhaps either neither both no none never nothing to with without where when for from "
    "until only just even "
    "odd other others another about approximately approx approximate around roughly nearly almost circa estimate "
    "estimated between least most "
    "minimum maximum except also instead possibly wrong correct incorrect false true right unless versus vs "
    "alternatively at above below "
    "exactly up down after before each every any some all both remaining negative reciprocal inverse square "
    "yes nor non vs so as un ne bad"
)
CHANGING_WORDS = frozenset(_OPERATIONS.split(" ")) | MULTIPLIERS.keys() | NUMBER_WORDS.keys()
"""Words that change a value, or say that it is not the answer, also where the question has them."""
_WORD = r"\\mu ?[a-zA-Z]*|\\Omega|[^\W\d_](?:\.[^\W\d_])+(?![^\W\d_])|[^\W\d_]+"
_IN_ONE_WORD = re.compile(
    r"\b(nautical|light)[ -]?(?=miles?|years?)|\bdegrees? (?=[Cc]elsius|[Ff]ahrenheit)"
)  # nautical miles
_TOKEN = re.compile(
    rf"(?P<word>{_WORD})\.?(?P<power>\^\{{?-?[0-9]\}}?|(?<=[a-zA-Z])[23](?![0-9]))?|(?P<slash>/)|\s+|[().·*-]|\\cdot ?"
    r"|(?P<other>.)"
)  # kg m^2/s
_RATES = {"mph": {"mi": 1, "h": -1}, "kph": {"km": 1, "h": -1}}
_AREA = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_POWERS = {"squared": 2, "cubed": 3}
_MAX_WORDS, _MAX_CHARS = 5, 80
UNKNOWN = "?"
Unit = tuple[tuple[str, int], ...]
"""Names with their powers, sorted: `m/s^2` is (("m", 1), ("s", -2)). Words of no list begin with `UNKNOWN`."""


_UNIT_POWER = r"(?:\^(?:-?[0-9]|\{-?[0-9]\}))?"
_IN_TEXT = "[^{}0-9,;=<>]*"
_SUFFIX = re.compile(
    rf"(?P<value>.*?[^\s\\=+*/^_<>(,-])(?:(?P<degree>\^\\circ ?(?:\\text\{{ ?[CF]\}}|[CF](?![a-zA-Z]))?)"
    rf"|(?P<text>(?:\\mu ?|\^\\circ ?)?"
    rf"(?:\\text\{{{_IN_TEXT}(?:\^\{{?-?[0-9]\}}?{_IN_TEXT})*\}}{_UNIT_POWER}(?:/|\\cdot ?)?){{1,6}})"
    rf"|(?<=[0-9}}) ])(?P<plain>(?:{_PLAIN_RATIO}|(?i:{'|'.join(PLAIN)})(?![a-zA-Z])){_UNIT_POWER}|[ap]m)"
    rf"|(?<=[0-9}}])(?P<foreign>[^\W\d_a-zA-Z]+))",
    re.DOTALL,
)  # 30^\circ C; 5\text{ m/s}^2; 9.8m/s^2; 5cm; 5pm; 5厘米
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")  # \tan 15
_CURRENCY = "[" + "".join(CURRENCIES) + "]"
_PRICE = re.compile(
    rf"(?P<sign>[-+]?)(?:(?P<front>{_CURRENCY})(?P<a>.+)|(?P<b>.+?)(?P<behind>{_CURRENCY}))", re.DOTALL
)  # ＄5; 5€


def split_unit(text: str) -> tuple[str, Unit | None, int]:
    """Return the value, the unit, and the factor of a number word such as "million"; (text, None, 1) without a unit."""
    if match := _PRICE.fullmatch(text):
        currency = CURRENCIES[match["front"] or match["behind"]]
        value, unit, factor = split_unit(match["sign"] + (match["a"] or match["b"]).strip())
        return value, tuple(sorted({**dict(unit or ()), currency: 1}.items())), factor
    match = _SUFFIX.fullmatch(text)
    if match is None:
        return text, None, 1
    if match["degree"]:
        if _TRIGONOMETRIC.search(match["value"]):
            return text, None, 1
        return match["value"], (("degree" + re.sub("[^CF]", "", match["degree"].replace(r"\circ", "")), 1),), 1
    written = match["text"] or match["plain"] or match["foreign"]
    spaced = not match["text"] or written.startswith(r"\text{ ")
    words = re.sub(r"\\text\{([^{}]*(?:\^\{-?[0-9]\}[^{}]*)?)\}", r" \1", written).replace(r"\cdot", " ").strip()
    factor = 1
    if found := multiplier(words):
        factor, words = found
        if not words:
            return match["value"], None, factor
    unit = read_unit(words, spaced)
    return (text, None, 1) if unit is None else (match["value"], unit or None, factor)


def read_unit(text: str, spaced: bool = True) -> Unit | None:
    r"""Return the unit that `text` writes, empty for words that only say that something is counted; None if it is not a unit.

    Args:
        text: what stands behind a value, without ``\text``, such as ``m/s^2``, ``square inches`` or ``p.m.``.
        spaced: a space stands in front; without one, capital `K` is thousands.
    """
    text = _IN_ONE_WORD.sub(lambda match: match[1] or "", text)
    tokens = list(_TOKEN.finditer(text)) if len(text) <= _MAX_CHARS else []
    words = [token["word"] for token in tokens if token["word"]]
    if not 0 < len(words) <= _MAX_WORDS or any(token["other"] for token in tokens):
        return None
    powers: Counter[str] = Counter()
    sign, area, last = 1, 0, ""
    for token in tokens:
        word = token["word"]
        if token["slash"] or (word and word.lower() == "per"):
            sign = -1
        elif word and word.lower() in _AREA and len(words) > 1:
            area = _AREA[word.lower()]
        elif word in _POWERS and powers:
            powers[last] *= _POWERS[word]
        elif word:
            name = _unit_name(word, spaced)
            if name is None:
                return None
            name = last = name or "unit" * bool(area)  # 24 square units
            power = area or int((token["power"] or "1").strip("^{}"))
            powers.update(_RATES.get(name) or {name: sign * power} if name else {})
            area = 0
    return tuple(sorted(powers.items()))


def _unit_name(word: str, spaced: bool) -> str | None:
    """Return the name of a known unit, "" for a word that counts, or the singular of an unknown word; None for anything else."""
    compact = word.replace(".", "").replace(" ", "")
    lower = compact.lower()
    if lower in ("am", "pm", "mph", "kph"):
        return lower
    if {lower, lower.removesuffix("s")} & CHANGING_WORDS:
        return None
    if compact not in _NAMES and compact[:1] in {*"MGT"} and _PREFIXED.fullmatch(compact):
        return compact
    if compact in _SYMBOLS:
        return _NAMES[compact] if spaced or compact != "K" else None
    for known in (lower, lower.removesuffix("s")):
        if known in _COUNTING:
            return ""
        if known in _NAMES and (known not in _SYMBOLS or not known.isascii()):
            return _NAMES[known]
    if _PREFIXED.fullmatch(compact):
        return compact.replace("\\mu", "μ").replace("µ", "μ")
    return (
        UNKNOWN + lower.removesuffix("s") if compact[:1].islower() and len(compact) > 1 and compact.isascii() else None
    )


def in_base_units(unit: Unit) -> tuple[Fraction, Unit]:
    """Return the factor of a unit and the units that it is made of: `km/h` is 5/18 of `m/s`."""
    factor, powers = Fraction(1), Counter[str]()
    for name, power in unit:
        prefixed = (Fraction(10) ** _PREFIXES[name[0]], name[1:]) if _PREFIXED.fullmatch(name) else (Fraction(1), name)
        one, base = _FACTORS.get(name, prefixed)
        factor *= one**power
        powers[base] += power
    return factor, tuple(sorted(powers.items()))


def multiplier(text: str) -> tuple[int, str] | None:
    """Return the factor and the rest of a text that begins with a number word such as ``million``."""
    word, _, rest = text.strip().partition(" ")
    factor = MULTIPLIERS.get(word.rstrip(".,"), MULTIPLIERS.get(word.rstrip(".,").removesuffix("s")))
    return None if factor is None else (factor, rest)


def number_in_words(text: str) -> int | None:
    """Return the number from 0 to 99 that words write, such as `forty-two` or 四十二; None for other words."""
    return NUMBER_WORDS.get(text.casefold().replace("-", " "))


def fraction_in_words(text: str) -> str | None:
    """Return the fraction that words write, such as 3/4 of `three quarters`; None for other words."""
    number, _, part = text.casefold().replace("-", " ").rpartition(" ")
    top = 1 if part == "half" and number in ("", "a") else number_in_words(number)
    bottom = (_PLURALS if top and top > 1 else _PARTS).get(part)
    return f"{top}/{bottom}" if top and bottom else None


_COUNTED = re.compile(
    r"(?:\b(?:how many|how much|number of|amount of|in|of|per|several|some|few)|[0-9]|\b(?:"
    + "|".join(f"{_ONES} {_TEENS} {_TENS}".split())
    + r"))((?:[\s-]+[a-zA-Z]+){1,4})",
    re.IGNORECASE,
)  # How many red apples; 12 zebras; three red balls


_CHANGE = re.compile(r"\b(?:what|the|find) per ?cent(?:age)?\b([^.?!]*)", re.IGNORECASE)  # By what percent did it rise
_DIRECTIONS = ("increase|rise|gain|growth|grow|profit", "decrease|drop|fall|decline|reduction|loss|discount")


@lru_cache(maxsize=1024)
def counted_words(prompt: str) -> frozenset[str]:
    """Return the words that a question counts or measures: those behind a number, "how many", "in" and the like, as singulars,
    and the change that it asks for in percent.

    Cached because every response of a group has the same prompt.
    """
    found = {
        word.lower().removesuffix("s")
        for match in _COUNTED.finditer(prompt)
        for word in re.findall("[a-zA-Z]+", match[1])
    }
    asked = " ".join(_CHANGE.findall(prompt)).lower()
    directions = [words for words in _DIRECTIONS if re.search(rf"\b(?:{words})", asked)]
    found |= {word.removesuffix("s") for word in directions[0].split("|")} if len(directions) == 1 else set()
    return frozenset(UNKNOWN + word for word in found - CHANGING_WORDS)
