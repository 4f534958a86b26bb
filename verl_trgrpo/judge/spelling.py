r"""Write a mathematical answer in one spelling of what Unicode and LaTeX write in several ways, and find its brackets.

Strings are short: an answer is capped at 1,000 characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from verl_trgrpo.judge.language import CHARACTERS, LATEX_COMMANDS, PLAIN_TEXT
from verl_trgrpo.judge.parser import FUNCTIONS
from verl_trgrpo.judge.units import CURRENCIES, DOLLAR, PLAIN, SHORT_UNITS, SPACED_SYMBOLS, number_in_words

_SCRIPTS = tuple(
    (re.compile(f"[{characters}]+"), mark, str.maketrans(characters, plain))
    for mark, characters, plain in (
        ("^", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼ⁿⁱ", "0123456789+-=ni"),  # x²
        ("_", "₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n"),  # x₁
    )
)
_CIRCLED = re.compile(r"\\textcircled\s*\{?([1-9])\}?")  # \textcircled{2}
_CIRCLES = re.compile(r"(?<=[①-⑳])\s*(?=[①-⑳])")  # ②④ are two, not 24
_VULGAR_FRACTION = re.compile("[¼-¾⅐-⅞]")  # ¾
_ROOTS = {"√": "", "∛": "[3]", "∜": "[4]"}
_ROOT = re.compile(r"([√∛∜])\s*(?:\(([^()]*)\)|([0-9]+(?:\.[0-9]+)?|[a-zA-Z]))")  # √13; ∛(2)
_KEPT = frozenset("ℝℤℕℚℂ") | CURRENCIES.keys()  # their compatibility form loses what they mean
AND, OR = "\ue004", "\ue005"
"""Stand behind a comma that stands for the word."""
# Words of other languages around a value.
_FOREIGN = {
    "最终答案": "answer:", "答案": "answer:", "答え": "answer:", "답": "answer:", "答": "answer:",
    "Respuesta": "answer:", "Réponse": "answer:",
    "Antwort": "answer:", "Ответ": "answer:", "Risposta": "answer:", "Resposta": "answer:", "选项": "option ", "选": "option ",
    "或者": r"\text{ or }", "或": r"\text{ or }", "または": r"\text{ or }", "或は": r"\text{ or }",
    "和": r"\text{ and }", "且": r"\text{ and }", "以及": r"\text{ and }",
    "比": ":", "根号": "√", "度": r"^\circ ", "无解": "no solution", "無解": "no solution", "解なし": "no solution",
    "✅": "", "✓": "", "✔": "", "☑": "", "˚": r"^\circ ",
}  # fmt: skip
_FOREIGN_WORD = re.compile("|".join(sorted(_FOREIGN, key=len, reverse=True)))  # 答案; 无解; ✅
_CODE_SIGNS = {"US": "＄", "Rs": "₹", "IN": "₹", "EU": "€", "GB": "£", "JP": "¥", "CN": "元", "RM": "元"}
_PLAIN_WORD = re.compile(r"(?<![a-zA-Z])(?:sqrt|[a-zA-Z]{3,}|pi|ln|lg)(?![a-z])|[<>!]=(?!=)")  # theta; 3pi; >=
_PLAIN_POWER = re.compile(r"\^\(([^()]*)\)")  # 7^(n+2)

_NESTED = r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
_FUNCTIONS = {*FUNCTIONS, "max", "min", "gcd", "lcm", "lim", "mod"} - {"sh", "ch", "th", "deg"}
ROW = "\ue000"  # stands for the row break of a matrix
GROUP = "\ue001"  # stands for a comma that may separate thousands
_PLAIN_NUMBER = re.compile(r"-?[0-9]{1,300}(?:\.[0-9]{1,300})?")  # -3.5
_GAP = re.compile(r"(?:\s|~|(?<!\\)\\ ){2,}")  # 5  m; 5\ \ m
_DOUBLED_BACKSLASH = re.compile(r"\\\\(?=[a-zA-Z]{2}|[{}])")  # `\\\\frac`, as a program prints it
_SPACE = r"\\(?:[!,;:> ~]|q?quad|hspace\{[^{}]*\})|~"
_THIN = r"(?:,\s*\\!|\{,\}|\\[,!; :]|[ ~\u00a0])\s*"
_CONJUNCTION = r"(?:and|or)"
_WORD_BEHIND = (
    rf"(?:[a-zA-Z]{{3,}}|[{SPACED_SYMBOLS}](?![a-zA-Z])|(?i:{'|'.join(SHORT_UNITS)})(?![a-zA-Z])|[a-zA-Z]\.[a-zA-Z])\.?"
)
_MAX_GROUPS = 3
_FLAT = r"((?:[^{}]|\{[^{}]*\})*?)"
_STACKED = {"over": "frac", "choose": "binom"}
_ARGUMENT = re.compile(r"\s*(?:\^(?:\w|\{[^{}]*\})\s*)?(?:\\(?!cdot|[,;!) ])|[a-zA-Z0-9({_|])")  # of \mathrm{sec}^2x
_SYMBOL = r"[0-9a-zA-Z]|\\(?!frac|sqrt|binom|text|left)[a-zA-Z]+"


def _is_function(name: str, match: re.Match[str]) -> bool:
    """Return whether upright letters are a function; `min` and `sec` without an argument are units."""
    return name in _FUNCTIONS and (name not in ("min", "sec") or bool(_ARGUMENT.match(match.string, match.end())))


def _upright(match: re.Match[str]) -> str:
    r"""Return upright letters as what they stand for: a function, a letter such as `\mathrm{e}`, a formula, or words."""
    inner = re.sub(_SPACE, " ", match[2]).strip()
    unit = "text|mu|Omega|circ" + "|cdot" * (
        re.search(r"[0-9}](?:\\[,;: ]|[ ~]){0,3}$", match.string[: match.start()]) is not None
    )
    if inner in ("i", "e", "d") or re.search(rf"\\(?!{unit})[a-zA-Z]", inner):
        return f"{match[1]}{inner}"
    return rf"{match[1]}\text{{{inner}}}"


def _unwrap(match: re.Match[str]) -> str:
    r"""Return the content of `\text{...}` alone where it is a formula: a number, a command, a list of numbers or capitals."""
    inner = match[1].strip()
    words = re.sub(rf"\\[a-zA-Z]+|\b{_CONJUNCTION}\b", "", inner)
    if inner not in ("max", "mod") and _is_function(inner, match):
        return rf"\{inner} "
    if not re.search(r"[^\W\d_]", words):
        return inner if inner == "," else f" {inner} "
    if match.string.startswith("_", match.end()):
        return inner  # \text{2A}_{16}
    if number := re.fullmatch(r"([^a-zA-Z{}\\]*[0-9])\s*([a-zA-Z][^{}]*)", inner):
        return rf"{number[1]}\text{{ {number[2]}}}"  # \text{5 cm}
    return rf"\text{{{match[1]}}}"


def _comma(match: re.Match[str]) -> str:
    return "," + (AND if "and" in match[0] else OR if "or" in match[0] else "")


_LAYOUT = tuple(
    (re.compile(pattern, re.DOTALL), replacement)
    for pattern, replacement in (
        (
            r"^(?:\\text\{ ?)?(US(?:D|(?=\$|＄))|Rs|INR|EUR|GBP|CNY|RMB|JPY)\.? ?\}? ?[$＄]?(?=[0-9.])",
            lambda m: _CODE_SIGNS[m[1][:2]],
        ),  # \text{USD }5
        (r"\.{3,}", r"\\ldots "),  # 0.333...
        (r"\\\\(?:\s*\[[-0-9.]+ *[a-z]+\])?", ROW),  # 1 \\[4pt] 2
        (rf"^(?:\\[!,;:> ]|[~\s{ROW}])+|(?:\\[!,;:> ]|[~\s{ROW}]|\\$){{1,20}}$", ""),  # \, 5\
        (r"^(\*\*|__|`+)(?![*_`])(.+?)\1\Z", r"\2"),  # **42**; `42`
        (r"""^["“”]([^"“”]+)["“”]\Z""", r"\1"),  # "42"
        (rf"\\({'|'.join(LATEX_COMMANDS)})(?![a-zA-Z])", lambda m: LATEX_COMMANDS[m[1]]),  # \dfrac12
        (
            r"\\(?:text(?:bf|rm|it|normal|sf|tt|up|sc)?|mbox|hbox|emph|bf|rm)\s*(?=\{)",
            r"\\text",
        ),  # \textbf{(C)}; \mbox{cm}
        (
            r"\\[()\[\]]"  # \( and \[ begin a formula
            r"|\\(?:left|right|middle)(?![a-zA-Z])\s*\.?|\\(?:[bB]igg?[lrm]?|displaystyle|textstyle|limits|tiny|small|large|Large|LARGE|huge|Huge)(?![a-zA-Z])"
            r"|\\(?:text)?color\s*(?:\[[a-z]*\])?\s*\{[-a-zA-Z0-9.,! ]*\}|\\tag\*?\s*\{[^{}]*\}|\\(?:over|under)set\{\}"
            r"|\\(?:square|blacksquare|Box|bigstar|checkmark|qed|nonumber|notag|newline|hfill|strut|mathstrut|null|bf|rm|it"
            r"|sf)(?![a-zA-Z])(?! ?\{)"
            r"|\\text\{ ?\(?(?:final )?answer\)? ?\}"
            r"|\\(?:underline|boxed|fbox|mathbf|boldsymbol|bm|pmb|mathit|mathsf|mathtt)\s*(?=\{|(?<=\s)[a-zA-Z](?![a-zA-Z]))",
            " ",
        ),  # \left(; \displaystyle x; \color{red}; \tag{1}; 5\checkmark; \boxed{5}
        (r"\$", ""),  # $5$
        (rf"(\s*)\\(?:math(?:rm|up)|operatorname\*?)\s*{_NESTED}", _upright),  # \mathrm{cm}; \operatorname{lcm}
        (
            r"^\s*(?i:(?:\\therefore|\\approx)(?![a-zA-Z])\s*|=(?!=)\s*|\W*共(?=[0-9])"
            r"|(?P<text>\\text\{\s*)?(?:the )?(?:final |correct )?answer\s*"
            r"(?:(?:is:?|:)(?![a-zA-Z])\s*(?:是|为|は)?[:\s]*|(?=\s*\}))(?P<end>\}\s*)?)(?:=(?!=)\s*)?",
            lambda m: r"\text{" if m["text"] and not m["end"] else "",
        ),  # answer: 42; \text{The answer is } 42; \text{Answer} = 42; = 42; \approx 42; 共42
        (rf"\\text\s*{_NESTED}", _unwrap),  # \text{east}
        (
            rf"(?<![0-9.,])[0-9]{{1,3}}(?:{_THIN}[0-9]{{3}})+(?! ?[0-9/])",
            lambda m: re.sub(_THIN, "", m[0]),
        ),  # 1\,250; 58,\!500; 1 000 000
        (
            r"(?<![0-9.,])[1-9](?:[0-9]{0,2}(?:,[0-9]{3})+|[0-9]?(?:,[0-9]{2})+,[0-9]{3})(?![0-9]|,[0-9])",
            lambda m: m[0].replace(",", GROUP),
        ),  # 1,250; 12,34,567
        (_SPACE, " "),  # 5\,m; 5~m; x \quad y
    )
)
_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (
            r"^([0-9]+)\s*\^?\{?\s*(?:\\text\{)?\s*(?:st|nd|rd|th)(?![a-zA-Z])\s*\}{0,2}\s*(?:\\text\{)?\s*([a-zA-Z]*)\}?\Z",
            lambda m: m[1] + rf"\text{{ {m[2].lower()}}}" * bool(m[2]),
        ),  # 6th; 6^{\text{th}}; 6th day
        (
            r"(?<=[0-9})!%])(?:\s+(?!(?:and|or|to|mod|if|for|where|with|is|per cent|pct)\b)"
            rf"(?P<words>{_WORD_BEHIND}(?:(?:\s+|\s*/\s*)[a-zA-Z]+\.?){{0,3}}(?:\^\{{?[23]\}}?)?)"
            rf"|\s*(?P<rate>/\s*(?:{'|'.join(PLAIN)})))\s*$",
            lambda m: rf"\text{{ {m['words'] or m['rate']}}}",
        ),  # 12 red apples; 6 m; 25000/year
        (r"(\\[a-zA-Z]+|\})\s+(?=\{)", r"\1"),  # \frac {1}
        (r"\{:\}", ":"),  # 3{:}40
        (r"\( ?(\\approx(?![a-zA-Z])[^()]*)\)$", r"\1"),  # \sqrt{2} (\approx 1.41)
        (r"(\\text\{ ?[a-z]+ and )([0-9]+) ([a-z]+ ?\})", r"\1}\2\\text{ \3"),  # 6\text{ red and 4 blue}
        (r"(\\text\{ ?[a-z]+) and ?\}(?= ?[0-9.]+ ?\\text)", r"\1}"),  # 3\text{ hours and }20\text{ minutes}
        (r"^\\\{\s*\\\}$", r"\\emptyset"),  # \{ \}
        (r"(?<=[0-9]) ?\(([a-zA-Z]{3}[a-zA-Z ]*)\)$", r"\\text{ \1}"),  # 9 (apples)
        (r"""(?<=[0-9])\s*(?:''|")$""", r"\\text{ in}"),  # 67"
        (
            r"(?P<text>\\text\{ ?)?\((?:\\text\{)? ?\\?b?mod ?\}? ?([0-9]+|[a-zA-Z]) ?\}?\)(?(text) ?\})",
            r"\\pmod{\2}",
        ),  # (\text{mod }7); (mod n); \text{ (mod 7)}
        (r"(\\equiv.{1,20}?) ?\\b?mod ?([0-9]+)$", r"\1\\pmod{\2}"),  # n\equiv1\bmod6
        (r"^([0-9.]+) ?([a-zA-Z]+) ([0-9.]+)(?=\\text\{)", r"\1\\text{ \2 }\3"),  # 3 hours 20\text{ minutes}
        (r"\\pmod\s*([0-9]+|[a-zA-Z])", r"\\pmod{\1}"),  # \pmod 3
        (
            rf"(?:\{{|^){_FLAT}\\(over|choose)(?![a-zA-Z]){_FLAT}(?:\}}|$)",
            lambda m: rf"\{_STACKED[m[2]]}{{{m[1]}}}{{{m[3]}}}",
        ),  # {n \choose 3}; 1 \over 2
        (r"(?:(?<![\\a-zA-Z])sqrt|\\sqrt\s*)\(([^()]*)\)", r"\\sqrt{\1}"),  # sqrt(2); \sqrt (2)
        (r"(?<=[0-9a-zA-Z)}])\s*\*\*\s*(?=[0-9a-zA-Z({\\])", "^"),  # x**2
        (
            r"\\?%|\\text\{\s*(?:per ?cent|pct)(?:\s*\}|(?P<word>\s+)(?=[a-z]))|(?<=[0-9]) (?:per ?cent|pct)$",
            lambda m: r"\%" + r"\text{ " * bool(m["word"]),
        ),  # 50%; 50\text{ percent}; 50\text{ percent increase}; 50 pct
        (r"\^\s*\{\s*\\circ\s*\}", r"^\\circ"),  # 90^{\circ}
        (
            r"\^\s*\{\s*((?:\\prime\s*)+)\}|\^\s*((?:\\prime(?![a-zA-Z])\s*)+)",
            lambda m: "'" * m[0].count("prime"),
        ),  # f^{\prime\prime}; f^\prime
        (r"^([0-9]+)\^\\circ ?([0-9]+)'$", r"\1\\text{ degrees}\2\\text{ arcminutes}"),  # 22^\circ30'
        (r"(?<=[0-9])\.([0-9]*)\\dot\s*\{?([0-9])\}?", r".\1\\overline{\2}"),  # 0.1\dot{6}
        (r"\\([ij])math(?![a-zA-Z])", r"\1"),  # \hat{\imath}
        (r"\\mathbb\s*([A-Z])(?![a-zA-Z])", r"\\mathbb{\1}"),  # \mathbb R
        (r"\\ddot\s*(?:\{([a-zA-Z])\}|([a-zA-Z]))", r"\1\2''"),  # \ddot{x}
        (r"\\dot(?![a-zA-Z])\s*(?:\{([a-zA-Z]|\\[a-zA-Z]+)\}|([a-zA-Z]|\\[a-zA-Z]+))", r"\1\2'"),  # \dot{x}; \dot\theta
        (
            r"\\frac\{\\text\{ ?([a-zA-Z]+)\}\}\{\\text\{ ?([a-zA-Z]+)\}(\^[0-9])?\}",
            r"\\text{ \1/\2\3}",
        ),  # 6\frac{\text{m}}{\text{s}}
        (r"\\begin\{array\}\s*\{[lcr| ]*\}", r"\\begin{array}"),  # \begin{array}{cc}
        (r"\\(?:begin|end)\{(?:align(?:ed)?\*?|gathered|split)\}", ""),  # \begin{aligned}
        (rf"(?:,\s*)?\\text\{{\s*(?:,\s*)?{_CONJUNCTION}\s*\}}|\s*\\&\s*", _comma),  # 1, \text{ and } 2; 1 \& 2
        (rf"(?:,\s*|(?<![a-zA-Z\\]))(?<=[\s,}})\d]){_CONJUNCTION}(?=[\s\\\d(-])", _comma),  # 1 and 2; 1, or 2
        (r"\\mathbb\{R\} ?- ?(?=\\\{)", r"\\mathbb{R}\\setminus"),  # \mathbb{R}-\{1\}
        (r"^\\mathbb\{R\}\^\{?([-+])\}?$", lambda m: r"(0,\infty)" if m[1] == "+" else r"(-\infty,0)"),  # \mathbb{R}^+
        (r"(?<=[0-9A-F]) ?\\text\{ ?\(?(?:in )?base ?(?:\} ?)?([0-9]+) ?\)? ?\}?$", r"_{\1}"),  # 1011 \text{ (base 2)}
        (
            r"(?<=[0-9A-F])_\{?\\text\{ ?([a-z]+) ?\}\}?$",
            lambda m: f"_{{{number_in_words(m[1]) or m[1]}}}",
        ),  # 1011_{\text{two}}
        (r"_\{\\text\{ ?(\w+) ?\}\}", r"_{\1}"),  # y_{\text{max}}
        (r"^([a-zA-Z]) ?: ?([a-zA-Z])\\(?:mapsto|to|rightarrow)(?![a-zA-Z])", r"\1(\2)="),  # f:x\mapsto x+1
        (r"^([a-zA-Z]\([a-z]\)) ?\\equiv(?![a-zA-Z])(?!.*mod)", r"\1="),  # f(x)\equiv 0
        (rf"\\frac\s*({_SYMBOL})", r"\\frac{\1}"),  # \frac43
        (rf"(\\frac\s*\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}})\s*({_SYMBOL})", r"\1{\2}"),  # \frac{4}3
        (rf"\\sqrt(\[[0-9a-z]\])?\s*({_SYMBOL})", r"\\sqrt\1{\2}"),  # \sqrt2; \sqrt[3]2
        (r"([_^])\s*\{\s*([0-9a-zA-Z])\s*\}(?! *[0-9])", r"\1\2"),  # x_{1}
        (r"(?<![\\a-zA-Z0-9}^_\]])\{\s*([0-9.]+|[a-zA-Z])\s*\}", r"\1"),  # {5}x
        (r" ?\\text\{ (?=[a-zA-Z])| \\text\{(?=[a-zA-Z])", "\ue002\\\\text{"),  # 5\text{ cm}; 5 \text{cm}
        (r"(?<![0-9a-zA-Z]) | (?![0-9a-zA-Z])", ""),  # x + 1
        (r"(?<=[0-9]) (?=[a-zA-Z])|(?<=[a-zA-Z]) (?=[0-9])", ""),  # 5 x; x 5
        (r"\ue002\\text\{", r"\\text{ "),  # \ue002\text{cm}
    )
)
_SEMICOLONS = re.compile(r"\([^(),]*\)")  # (0;0),(1;2)
_BRACKET = r"(?P<open>\\begin\{[a-z]*\*?\}|\\\{|[(\[{])|(?P<close>\\end\{[a-z]*\*?\}|\\\}|[)\]}])"


@lru_cache(maxsize=4096)
def normalize(text: str) -> str:
    r"""Return `text` in one spelling of what Unicode and LaTeX write in several ways: `\dfrac12` and `\frac 12` become equal.

    Meaningless spaces, dollar signs, layout commands and a final period go; a value is never changed. Commas that may separate
    thousands become `GROUP`, row breaks `ROW`. Cached because every response of a group has the same ground truth.
    """
    if _PLAIN_NUMBER.fullmatch(text):
        return text
    text = _GAP.sub(" ", text)  # the patterns below take runs of white space apart in many ways
    if "\\" not in text:
        text = _plain_text(text)
    text = plain_characters(_FOREIGN_WORD.sub(lambda match: _FOREIGN[match[0]], text))
    if r"\begin" not in text:
        text = _DOUBLED_BACKSLASH.sub(lambda _: "\\", text)
    text = _GAP.sub(" ", _rewritten(text, _LAYOUT)).strip()
    text = _rewritten(ungrouped(text).rstrip(".,;:"), _RULES)
    if r"\begin" not in text:
        text = text.replace("&", "")
    text = text.replace(";", ",") if "," not in text else _SEMICOLONS.sub(lambda m: m[0].replace(";", ","), text)
    return ungrouped(text)


def _plain_text(text: str) -> str:
    """Return a formula in plain text as LaTeX writes it; with a word that is not in `PLAIN_TEXT`, it stays as it is."""
    words = {match[0] for match in _PLAIN_WORD.finditer(text)}
    if not words <= {"sqrt", *PLAIN_TEXT} or (text in words and text != "pi"):
        return text
    return _PLAIN_POWER.sub(r"^{\1}", _PLAIN_WORD.sub(lambda match: PLAIN_TEXT.get(match[0], match[0]), text))


def _rewritten(text: str, rules: Iterable[tuple[re.Pattern[str], Any]]) -> str:
    for pattern, replacement in rules:
        if pattern.search(text):  # `sub` with a template costs more, also without a match
            text = pattern.sub(replacement, text)
    return text


def ungrouped(text: str) -> str:
    """Return `text` without braces that group all of it; each layer is read once more, so there are few."""
    for _ in range(_MAX_GROUPS):
        if not (text.startswith("{") and enclosed(text)):
            break
        text = text[1:-1].strip().rstrip(".")
    return text


def plain_characters(text: str) -> str:
    """Return `text` with Unicode's scripts, fractions, roots, letters and signs as LaTeX writes them."""
    for pattern, mark, plain in _SCRIPTS:
        text = pattern.sub(lambda run, mark=mark, plain=plain: f"{mark}{{{run[0].translate(plain)}}}", text)  # type: ignore[misc]
    text = text.replace(r"\$", DOLLAR).replace("º", "°")
    text = _CIRCLED.sub(lambda match: chr(0x245F + int(match[1])), text)
    if not text.isascii():
        text = _CIRCLES.sub(",", text)
        text = _VULGAR_FRACTION.sub(
            lambda m: r"\frac{" + unicodedata.normalize("NFKC", m[0]).replace("⁄", "}{") + "}", text
        )
        text = "".join(
            c if c in _KEPT else unicodedata.normalize("NFKC", c)
            for c in text
            if unicodedata.category(c) != "Cf" and c != "\ufe0f"
        )
        text = _ROOT.sub(lambda m: rf"\sqrt{_ROOTS[m[1]]}{{{m[2] or m[3]}}}", text)
    return text.translate(CHARACTERS)


def enclosed(text: str) -> bool:
    """Return whether the bracket at the start closes at the end; any kind closes any other, as in `(0,1]`."""
    return next((match.end() for match, depth in brackets(text) if depth <= 0), None) == len(text)


def split_top_level(text: str, separator: str) -> list[str]:
    """Return the parts of `text` between those separators that stand outside all brackets."""
    if separator not in text:
        return [text.strip()]
    parts, begin = [], 0
    for match, depth in brackets(text, "|" + re.escape(separator)):
        if match[0] == separator and depth == 0:
            parts.append(text[begin : match.start()].strip())
            begin = match.end()
    return [*parts, text[begin:].strip()]


def brackets(text: str, pattern: str = "") -> Iterator[tuple[re.Match[str], int]]:
    """Yield brackets and what else `pattern` finds, each with the number of brackets open behind it."""
    depth = 0
    for match in re.finditer(_BRACKET + pattern, text):
        depth += bool(match["open"]) - bool(match["close"])
        yield match, depth
