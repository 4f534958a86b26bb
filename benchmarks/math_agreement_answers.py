"""Answers made from a ground truth by rule, for `math_agreement.py`: of the same value, and of another."""

import re
from collections.abc import Iterator
from fractions import Fraction

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_INTEGER = re.compile(r"-?[0-9]+")
_FRACTION = re.compile(r"(-?)\\d?frac\{(-?[0-9]+)\}\{([0-9]+)\}")
_LIST = re.compile(r"[^()\[\]{}]*,[^()\[\]]*")
_PAIR = re.compile(r"([(\[])(.*,.*)([)\]])", re.DOTALL)
_MATRIX = re.compile(r"\\begin\{.matrix\}")
_ARGUMENT = re.compile(r"\\(sin|cos|tan|ln)\s*(\\theta|[a-z])(?![a-z(])")
_UNIT_I = re.compile(r"(?<![a-zA-Z\\{])i(?![a-zA-Z])")
_FORMULA_ALONE = re.compile(r"[=<>,;]|\\(?:le|leq|ge|geq|in|text|mbox|approx|equiv|ne|neq|pm)(?![a-z])|\bor\b|\band\b")
_UNIT = re.compile(r"(.*[0-9}])\s*(?:\\(?:text|mbox)\{[^{}]*\}(?:\^2)?|\^\{?\\circ\}?)")


def bare(gold: str) -> str:
    """Return the ground truth without the dollar signs around its parts."""
    return gold.strip() if r"\$" in gold else gold.strip().replace("$", "").strip()


def same_values(gold: str) -> Iterator[tuple[str, str]]:
    """Ways to write the same value: (rule, answer)."""
    text = bare(gold)
    if text.count("{") != text.count("}"):
        return
    fraction = _FRACTION.fullmatch(text)
    integer = _INTEGER.fullmatch(text)
    yield "as it is", gold.strip()
    yield "period behind", text + "."
    if text != gold.strip():
        yield "dollar signs left out", text
    if r"\frac{" in text:
        yield r"\dfrac", text.replace(r"\frac{", r"\dfrac{")
    if fraction:
        yield "a/b", f"{fraction[1]}{fraction[2]}/{fraction[3]}"
        value = Fraction(int(fraction[2]), int(fraction[3]))
        if 1000 % value.denominator == 0:
            yield "decimal for fraction", f"{fraction[1]}{float(value)}"
    if integer:
        yield "1.0 for 1", f"{text}.0"
        yield r"in \text", rf"\text{{{text}}}"
        if len(text.lstrip("-0")) > 3:
            yield "thousands comma", f"{int(text):,}"
        if text.lstrip("-").startswith("0") and int(text):
            yield "leading zero left out", str(int(text))
    elif _NUMBER.fullmatch(text):
        if text.endswith(".0"):
            yield "integer for float", text[:-2]
        elif (value := Fraction(text)).denominator > 1:
            yield "fraction for decimal", rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
    if _NUMBER.fullmatch(text) or fraction:
        yield "x = in front", f"x = {text}"
        yield "unit added", rf"{text} \text{{ cm}}"
    if "=" in text and text.count("=") == 1 and "," not in text and re.match(r"[a-zA-Z](?:\([a-z]\))?\s*=", text):
        yield "name left out", text.partition("=")[2].strip()
    if (match := _UNIT.fullmatch(text)) and not re.search(r"\\(?:sin|cos|tan)", text):
        yield "unit left out", match[1].strip()
    if "%" in text and "=" not in text:
        yield "percent sign left out", text.replace(r"\%", "").replace("%", "").strip()
    if r"\text{" in text:
        yield r"\textbf for \text", text.replace(r"\text{", r"\textbf{")
    if (
        _LIST.fullmatch(text)
        and "!" not in text
        and not _thousands(text)
        and not re.search(r"\\text|\\,|\band\b|\bor\b", text)
    ):
        yield "list in another order", ", ".join(reversed([part.strip() for part in text.split(",")]))
        yield "list in braces", rf"\{{{text}\}}"
    if _PAIR.fullmatch(text) and "),(" not in text.replace(" ", "") and r"\left" not in text:
        yield r"\left and \right", re.sub(r"([)\]])", r"\\right\1", re.sub(r"([(\[])", r"\\left\1", text))
    if (
        match := re.fullmatch(r"([^-+=(),\\{}\[\]]+) ?\+ ?([^-+=(),{}\[\]]+(?:\{[^{}]*\})*)", text)
    ) and "'" not in text:
        yield "sum in another order", f"{match[2].strip()}+{match[1].strip()}"


def _thousands_spellings(integer: str) -> Iterator[tuple[str, str]]:
    sign, groups = ("-" if integer.startswith("-") else ""), f"{abs(int(integer)):,}"
    yield "thousands in dollars", rf"{sign}\${groups}"
    yield "thousands with a unit", rf"{sign}{groups} \text{{ miles}}"
    yield "thousands with a word", f"{sign}{groups} miles"
    yield "thousands behind a name", f"x={sign}{groups}"
    yield "thousands with spaces", sign + groups.replace(",", " ")
    yield "thousands with thin spaces", sign + groups.replace(",", r"\,")


def more_spellings(gold: str) -> Iterator[tuple[str, str]]:
    """More ways to write the same value: (rule, answer)."""
    text = bare(gold)
    if text.count("{") != text.count("}"):
        return
    if _INTEGER.fullmatch(text) and len(text.lstrip("-0")) > 3:
        yield from _thousands_spellings(text)
    if _FORMULA_ALONE.search(text) is None:
        yield "name of words in front", rf"\text{{Answer}} = {text}"
    if r"\text" not in text:
        yield "bold", rf"\mathbf{{{text}}}"
    yield "spaces around", rf"\ {text}\ "
    if _MATRIX.search(text):
        yield "name of a matrix", rf"\mathbf{{A}} = {text}"
        array = re.sub(r"\\end\{.matrix\}", r"\\end{array}\\right)", text)
        yield "array", re.sub(r"\\begin\{.matrix\}", r"\\left(\\begin{array}{ccc}", array)
    if re.fullmatch(r"[(\[][^=]*,[^=]*[)\]]", text):
        yield "name of a tuple", f"P={text}"
    if _ARGUMENT.search(text):
        yield "parentheses of a function", _ARGUMENT.sub(r"\\\1(\2)", text)
    if _UNIT_I.search(text) and r"\text" not in text:
        yield r"\mathrm{i}", _UNIT_I.sub(r"\\mathrm{i}", text)
    if r"^\circ" in text:
        yield "degree sign", text.replace(r"^\circ", "°")
    if re.search(r"\\sqrt\{(?:[0-9]+|[a-z])\}", text):
        yield "root sign", re.sub(r"\\sqrt\{([0-9]+|[a-z])\}", r"√\1", text)


def other_values(gold: str) -> Iterator[tuple[str, str]]:
    """Answers with another value: (rule, answer)."""
    text = bare(gold)
    if digits := list(re.finditer(r"[0-9]", text)):
        last = digits[-1]
        yield "a digit changed", f"{text[: last.start()]}{(int(last[0]) + 1) % 10}{text[last.end() :]}"
    if (_NUMBER.fullmatch(text) and float(text) != 0) or _FRACTION.fullmatch(text):
        yield "sign changed", text[1:] if text.startswith("-") else f"-{text}"
        yield "or another", rf"{text} \text{{ or }} 987"
    if _INTEGER.fullmatch(text):
        value = int(text)
        yield "list of candidates", ", ".join(str(value + step) for step in range(-2, 3))
        yield "candidates, the right one last", ", ".join(str(value + step) for step in range(-2, 1))
        yield "sum not worked out", f"{value - 1}+1"
    if match := _FRACTION.fullmatch(text):
        value = Fraction(int(match[2]), int(match[3]))
        if 10**6 % value.denominator:
            yield "fraction rounded to 6 places", f"{match[1]}{float(value):.6f}"
    if r"\sqrt" in text and "," not in text and re.fullmatch(r"-?[0-9 ]*\\sqrt\{[0-9]+\}", text):
        factor = text.partition(r"\sqrt")[0].strip() or "1"
        root = float(re.search(r"\{([0-9]+)\}", text)[1]) ** 0.5  # type: ignore[index]
        yield "root rounded to 6 places", f"{(int(factor) if factor != '-' else -1) * root:.6f}"
    if match := _PAIR.fullmatch(text.replace(r"\left", "").replace(r"\right", "")):
        yield from _other_brackets(match)
    if _LIST.fullmatch(text) and "!" not in text and not _thousands(text):
        parts = [part.strip() for part in text.split(",")]
        yield "element left out", ", ".join(parts[:-1])
        yield "element added", f"{text}, 987"


def _other_brackets(match: re.Match[str]) -> Iterator[tuple[str, str]]:
    if match[2].count(",") == 1 and not re.search(r"[()\[\]]", match[2]):
        yield "bracket changed", f"{'(' if match[1] == '[' else '['}{match[2]}{match[3]}"
        yield "brackets left out", match[2].strip()


def _thousands(text: str) -> bool:
    return re.match(r"(\\\$|-)?[0-9]{1,3}(,[0-9]{3})+", text) is not None
