"""Decide whether an answer equals a ground truth."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd
from types import MappingProxyType

from verl_trgrpo.judge.answer_form import read_answer
from verl_trgrpo.judge.answers import read_forms
from verl_trgrpo.judge.forms import (
    CONSTANT,
    INTERVALS,
    NAME_OF_FUNCTION,
    Form,
    may_lose_name,
    names_differ,
    same_sets,
)
from verl_trgrpo.judge.integers import class_name, integers_of, is_class
from verl_trgrpo.judge.numbers import Number, equal_numbers, has_many_places
from verl_trgrpo.judge.parser import tokens_of
from verl_trgrpo.judge.shapes import (
    CHOICES,
    as_point,
    components,
    cover_all,
    has_other_names,
    is_choice_list,
    is_no_interval,
    is_one_value,
    is_ranking,
    may_be_point,
    names_variables,
    numbers_in,
)
from verl_trgrpo.judge.spelling import GROUP, normalize, split_top_level
from verl_trgrpo.judge.units import (
    CHANGING_WORDS,
    SPACED_SYMBOLS,
    UNKNOWN,
    Unit,
    counted_words,
    in_base_units,
    number_in_words,
)

SameFormula = Callable[[str, str], bool]

_SLOPPY_POWER = re.compile(r"\^(-?[0-9]{2,}|-[0-9])")  # x^10; x^-1
_ALTERNATIVES = re.compile(r"\s*(?:\\text\{\s*OR\s*\}|\bOR\b)\s*")  # 0.09 \text{ OR } \frac{9}{100}; 1 OR 2
_PUNCTUATION = re.compile(r"[^\w?]+")  # well-known
_PLAIN_WORDS = re.compile(
    r"[^\W\d_]|[^\W\d_](?:[^\W_]| )*[^\W_]|[^\W\d_][^\W\d_' ]*[^\W\d_]"
)  # ellipse; right angle; Fermat's theorem
_ARTICLE = re.compile(r"(?:an?|the) (?=\w{2})", re.IGNORECASE)  # an ellipse
_CAPITALS = re.compile(r"[A-Z](?: ?[A-Z])+")  # A B
_NO_FORMULA = re.compile(
    r"\\(?:text|neq|vee|lor)|^[A-J]\W*[A-J]?\W*$|(?<![a-zA-Z\\])[a-zA-Z]{3}"
)  # \text{none}; D; \neq D; none
_MIN_WORD_CHARS = 4  # without `\text`; fewer letters are a product such as `mgh`, but for "yes", "no" and the like
_PERIOD = re.compile(r"(?:^|(?<=[+-]))[0-9]*(?=[kmnl]\\pi|\\pi ?[kmnl])(?:\\pi ?)?([kmnl])(?![a-zA-Z^_])")  # +2k\pi
_TIME = re.compile(r"(?:[01]?[0-9]|2[0-4]):[0-5][0-9](?::[0-5][0-9])?")  # 12:30; 7:45:10
_NUMERAL = re.compile(r"[0-9A-F]+_[0-9]+")  # 52_8
_WHOLE = re.compile(r"[0-9]+")  # 52
_INTEGER = re.compile(r"-?[0-9]+")  # -12
_BIG = re.compile(r"\\(?:sum|prod|int|lim)")  # \sum_{k=1}^n k
_DEGREE, _RADIAN = (("degree", 1),), (("radian", 1),)
_OTHERWISE = Form("word", "otherwise")
_UNIT_VECTOR = re.compile(r"\\(?:hat|widehat|vec) ?(?:\{([ijk])\}|([ijk]))(?![a-zA-Z])")  # \hat{i}; \vec k
_NO_DEGREES = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc|pi|exp|ln|log)(?![a-zA-Z])")  # \sin
_COUNT_IN_WORDS = re.compile(r"(?:\\text\{ ?)?([a-zA-Z]+(?:-[a-z]+)?) ([a-zA-Z ]+?) ?\}?")  # \text{five dollars}
_SPACED_SYMBOL = re.compile(rf"(?<=[0-9}}]) +([{SPACED_SYMBOLS}]$)")  # 6 m


def equal_answers(
    golds: Iterable[str],
    answer: str,
    same_formula: SameFormula,
    *,
    rounded_gold: bool = False,
    question: str = "",
    ordered: bool = False,
    in_question: Callable[[str], bool] = lambda text: False,
    options: Mapping[str, str] = MappingProxyType({}),
    places: int | None = None,
    base: int | None = None,
) -> bool:
    """Return whether the answer equals one of the ground truths, all as written.

    What is not understood about an answer makes it wrong, unless the ground truth says the same. Shape, words and numbers decide
    most; `same_formula` is asked about two LaTeX formulas, the gold's and the answer's. With `rounded_gold`, an answer with more
    digits than a decimal gold is rounded to the gold's last place first. Words behind a number may be those that
    `question` counts.

    Args:
        golds, answer: as written.
        same_formula: of two LaTeX formulas, the gold's and the answer's.
        rounded_gold: as above.
        question: its text.
        ordered: lists are compared in order.
        in_question: whether a left side of an equation, such as `x^2`, is what the question asks for.
        options: what the question writes behind the letters of a choice.
        places: decimal places to which the question asks to round.
        base: in which the question asks for the number.
    """
    answer_text = normalize(answer)
    golds = list(golds)
    if answer.strip() and answer.strip() in map(str.strip, golds):
        return True  # also a gold that is not an answer, such as "$", or names alternatives
    if not answer_text:
        return False
    texts = [normalize(alternative) for gold in golds for alternative in alternatives(gold)]
    if answer_text in texts:
        return True
    comparison = _Comparison(rounded_gold, same_formula, question, ordered, in_question, options, places, base)
    answers = read_forms(answer_text)
    if (match := _COUNT_IN_WORDS.fullmatch(answer_text)) and (number := number_in_words(match[1])) is not None:
        answers += read_forms(rf"{number}\text{{ {match[2]}}}")
    if _SPACED_SYMBOL.search(answer):  # `6 m` is six metres, or `6m`
        answers += read_forms(normalize(_SPACED_SYMBOL.sub(r"\1", answer)))
    return any(
        comparison.equal_forms(gold, form) for text in texts for gold in read_forms(text, gold=True) for form in answers
    )


def alternatives(gold: str) -> list[str]:
    r"""Return the ground truths that a string names: `0.09 \text{ OR } \frac{9}{100}` names two; its own box is removed."""
    if r"\boxed" in gold:
        gold = read_answer(gold, "box") or gold
    return [part for part in _ALTERNATIVES.split(gold) if part.strip()] or [gold]


def formulas(form: Form) -> list[str]:
    """Return the strings in `form` that only a parser of formulas can understand."""
    if form.items:
        return [text for item in form.items for text in formulas(item)]
    return (
        [] if form.number is not None or form.kind in ("word", "choice") else [_SLOPPY_POWER.sub(r"^{\1}", form.text)]
    )


@dataclass(frozen=True)
class _Comparison:
    rounded_gold: bool
    same_formula: SameFormula
    question: str
    ordered: bool
    in_question: Callable[[str], bool]
    options: Mapping[str, str]
    places: int | None
    base: int | None

    def equal_forms(self, gold: Form, answer: Form) -> bool:
        if "choice" in (gold.kind, answer.kind):
            return self.equal_choices(gold, answer)
        if "ratio" in (gold.kind, answer.kind):
            return self.same_ratio(gold, answer)
        if is_class(gold) or is_class(answer):
            one, other = integers_of(gold), integers_of(answer)
            return one is not None and one == other and len({class_name(gold), class_name(answer)} - {None}) < 2
        if "parts" in (gold.kind, answer.kind):
            return self.same_parts(gold, answer)
        chain = re.split("[<>]", _inequality(answer)) if gold.kind == "list" else []
        if len(chain) > 2 and self.order_matters(gold, answer):  # C<A<B
            return self.same_parts(gold, Form("list", items=tuple(read_forms(each)[0] for each in chain)))
        if gold.items and names_differ(gold, answer) and not (gold.text and answer.text):
            return False  # before a set of one value loses its name: A={5} and B={5}
        if same_sets(gold, answer) or self.equal_named_values(gold, answer):
            return True
        # A set of one value is that value.
        gold, answer = (f.items[0] if is_one_value(f) else f for f in (gold, answer))
        if not gold.items and not answer.items:
            return self.equal_values(gold, answer)
        if gold.items and answer.items and not names_differ(gold, answer):
            return self.equal_several(gold, answer)
        return self.equal_written_otherwise(gold, answer)

    def equal_written_otherwise(self, gold: Form, answer: Form) -> bool:
        """Compare a vector with its components, `(2,-3)` with `2i-3j`; an inequality with a set; `BD` with `B, D`."""
        if {"()", "matrix"} & {gold.kind, answer.kind} and (one := components(gold)) and (other := components(answer)):
            return gold.kind != answer.kind and self.equal_formulas(one, other)
        if (one := _inequality(gold)) and (other := _inequality(answer)):
            return self.equal_formulas(one, other)
        return is_choice_list(gold, answer)

    def equal_several(self, gold: Form, answer: Form) -> bool:
        """Compare lists, points, unions and the like of several values, whose names do not differ."""
        if gold.kind == "union" and answer.kind == "list":
            # "x<2 or x>3"; neither a list of points nor conditions on two variables are a union.
            names = {item.name if item.items else None for item in answer.items}
            same_name = len(names) == 1 and None not in names and gold.name in (None, *names)
            return same_name and self.equal_unordered(gold.items, answer.items)
        if gold.kind == "[]" and answer.kind == "list" and is_no_interval(gold):
            return self.same_parts(replace(gold, kind="list"), answer)  # [4,2]
        if "()" in (gold.kind, answer.kind) and len(gold.items) > 2:
            gold, answer = (
                replace(form, kind="()") if form.kind == "[]" else form for form in (gold, answer)
            )  # [1,2,3]
        if {gold.kind, answer.kind} == {"matrix", "()"}:
            gold, answer = as_point(gold), as_point(answer)
        if gold.kind != answer.kind and not (answer.kind == "()" and may_be_point(gold, answer)):
            return False
        if gold.kind == "cases":
            return self.same_cases(gold, answer)
        unordered = gold.kind == answer.kind and gold.kind in ("list", "union", "meet")
        if unordered and not self.order_matters(gold, answer):
            return self.equal_unordered(gold.items, answer.items)
        return (
            len(gold.items) == len(answer.items)
            and not has_other_names(gold, answer)
            and all(map(self.equal_forms, gold.items, answer.items))
        )

    def same_parts(self, gold: Form, answer: Form) -> bool:
        """Compare numbered parts in order, also with a list of as many values."""
        kinds = {gold.kind, answer.kind}
        return (
            kinds <= {"parts", "list", "meet"} and not (gold.braces or answer.braces) and len(gold.items) == len(answer.items)
            and all(map(self.equal_forms, gold.items, answer.items))
        )  # fmt: skip

    def same_cases(self, gold: Form, answer: Form) -> bool:
        """Compare cases in any order; "otherwise" is the one condition that is left."""
        left = list(answer.items)
        if len(left) != len(gold.items):
            return False
        last = []
        for row in gold.items:
            same = next((other for other in left if self.equal_forms(row, other)), None)
            if same is None:
                last.append(row)
            else:
                left.remove(same)
        if not last:
            return True
        leaves_rest = [sum(_OTHERWISE in row.items for row in rows) for rows in (gold.items, answer.items)]
        covers = leaves_rest[1] == 1 or (leaves_rest[0] == 1 and cover_all([row.items[1] for row in answer.items]))
        return (
            len(last) == 1 and max(leaves_rest) == 1 and covers
            and _OTHERWISE in (last[0].items[-1], left[0].items[-1])
            and self.equal_forms(last[0].items[0], left[0].items[0])
        )  # fmt: skip

    def order_matters(self, gold: Form, answer: Form) -> bool:
        """Return whether the order of values counts: of named variables (`1, 2` for `x=1, y=2`), a sequence, a ranking."""
        if any(item.text == r"\ldots" for item in gold.items) or is_ranking(gold):
            return True
        if names_variables(gold) and not any(item.name for item in answer.items):
            return True
        return self.ordered and not all(item.name for item in (*gold.items, *answer.items))

    def equal_choices(self, gold: Form, answer: Form) -> bool:
        """Compare letters, and the values beside them where both have one: `\\textbf{(E)}\\ 48` is E and 48."""
        if gold.kind == answer.kind:
            if gold.text != answer.text or not answer.items:
                return gold.text == answer.text
            value = answer.items[0]
            return self.equal_forms(gold.items[0], value) if gold.items else self.is_option(value, answer.text)
        choice, other = (gold, answer) if gold.kind == "choice" else (answer, gold)
        if not other.items and other.text == choice.text:
            return choice is gold or not choice.items or self.is_option(choice.items[0], choice.text)
        if not choice.items or (other.kind == "value" and CHOICES.fullmatch(other.text)):
            return False  # another letter
        if choice is answer and self.options.get(choice.text) and not self.is_option(choice.items[0], choice.text):
            return False  # the right value behind the letter of another option
        return self.equal_forms(choice.items[0], other) if choice is gold else self.equal_forms(other, choice.items[0])

    def is_option(self, value: Form, letter: str = "") -> bool:
        """Return whether a value may be written with the letter of a choice.

        With known options, the value has to be that of the option. Otherwise the letter decides: a formula or words of the
        question may follow.
        """
        option = self.options.get(letter)
        if option and any(self.equal_forms(form, value) for form in read_forms(normalize(option), gold=True)):
            return True
        if value.kind in ("value", *INTERVALS) and not _NO_FORMULA.search(value.text):
            none = value.text == r"\emptyset" and "none" in (option or "").casefold()  # none, for "none of them"
            return none or (not option and all(map(self.is_option, value.items)))
        stated = letter + value.text.replace(r"\text", "")
        words, question = ("".join(re.findall(r"[^\W_]+", text)).casefold() for text in (stated, self.question))
        return value.text != "" and words in question

    def same_ratio(self, gold: Form, answer: Form) -> bool:
        """Compare place by place; a time of day only with the same time, another ratio also with its reduced form."""
        if not self.units_agree(gold.unit, answer.unit) or names_differ(gold, answer):
            return False
        parts = [(item.unit, item.number is not None and item.number.percent) for item in answer.items]
        if any(unit not in (None, answer.unit) or percent for unit, percent in parts) and gold.text != answer.text:
            return False  # 2 km : 3 m
        if gold.kind != answer.kind:
            fraction, ratio = (answer, gold) if gold.kind == "ratio" else (gold, answer)
            number = fraction.number
            if number is not None and (number.is_division or (fraction is gold and number.value.denominator == 1)):
                return False  # 7:1 for 7 is a division to be worked out, and so is \frac{4}{2} for 2:1
            values = numbers_in(ratio)
            if number is None and len(ratio.items) == 2 and fraction.kind == "value" and not fraction.unit:
                quotient = rf"\frac{{{ratio.items[0].text}}}{{{ratio.items[1].text}}}"
                return self.equal_formulas(*((quotient, answer.text) if ratio is gold else (gold.text, quotient)))
            return bool(
                values and len(values) == 2 and values[1] and not _TIME.fullmatch(ratio.text)
                and number is not None and number.value == values[0] / values[1]
            )  # fmt: skip
        if gold.text == answer.text:
            return True
        if _TIME.fullmatch(gold.text) or _TIME.fullmatch(answer.text) or len(gold.items) != len(answer.items):
            return False
        if all(map(self.equal_forms, gold.items, answer.items)):
            return True
        ours, theirs = numbers_in(gold), numbers_in(answer)
        if not ours or not theirs or not all(_INTEGER.fullmatch(item.text) for item in answer.items):
            return False
        reduced = gcd(*(value.numerator for value in theirs)) == 1
        return reduced and all(a * theirs[0] == b * ours[0] for a, b in zip(ours, theirs, strict=True)) and ours[0] != 0

    def equal_named_values(self, gold: Form, answer: Form) -> bool:
        """Compare `(a,b)=(1,2)` with `a=1, b=2`; `(1,2)` with names in alphabetical order, or in that of the question."""
        pair, listed = (gold, answer) if gold.kind == "()" else (answer, gold)
        if (pair.kind, listed.kind) != ("()", "list"):
            return False
        names = [item.name or "" for item in listed.items]
        wanted = pair.name.strip("()").split(",") if pair.name else sorted({*names} - {""})
        known = pair.name or self.in_question(f"({','.join(wanted)})")
        if sorted(names) != sorted(wanted) or not (known or names == wanted):
            return False
        in_order = Form("()", items=tuple(listed.items[names.index(name)] for name in wanted))
        pair = replace(pair, name=None)
        return self.equal_forms(*((in_order, pair) if gold is listed else (pair, in_order)))

    def equal_unordered(self, gold: Sequence[Form], answer: Sequence[Form]) -> bool:
        """Equality is transitive, so taking the first equal item of those left is as good as any."""
        left = list(answer)
        for item in gold:
            position = next((place for place, other in enumerate(left) if self.equal_forms(item, other)), None)
            if position is None:
                return False
            del left[position]
        return not left

    def equal_values(self, gold: Form, answer: Form) -> bool:
        if answer.last and gold.name is None and gold.kind != "relation":
            left, *between, _ = split_top_level(answer.text, "=")
            asked = self.in_question(left)
            if CONSTANT.fullmatch(gold.text):  # x+y=10 and 10, but not x^2=10
                return (asked or not _is_left_to_solve(left)) and self.equal_forms(gold, answer.last)
            if asked and all(self.equal_formulas(gold.text, part) for part in (left, *between)):
                return self.equal_forms(gold, answer.last)  # (x+1)^2=x^2+2x+1
        if (gold.kind == "relation") != (answer.kind == "relation"):  # y=-2x and 2x+y=0
            one, other = _equation(gold), _equation(answer)
            left_to_find = gold.name is not None and CONSTANT.fullmatch(gold.text)  # x=5 and 2x-10=0
            return not left_to_find and one is not None and other is not None and self.equal_formulas(one, other)
        if names_differ(gold, answer):
            return self.equal_renamed(gold, answer)
        if gold.name and not answer.name and not may_lose_name(gold):
            return False
        if not self.equal_chains(gold, answer):
            return False
        if answer.approximation is not None and not self.fits(answer.text, answer.approximation):
            return False
        if (one := _in_degrees(gold)) and (other := _in_degrees(answer)) and r"\circ" in gold.text + answer.text:
            return self.equal_formulas(one, other)
        units = {gold.unit, answer.unit}
        if units == {_DEGREE, _RADIAN} or (units == {_DEGREE, None} and r"\pi" in gold.text + answer.text):
            return self.equal_formulas(_in_radians(gold), _in_radians(answer))
        if not self.units_agree(gold.unit, answer.unit):
            return self.equal_converted(gold, answer)
        percents = [form.number is not None and form.number.percent for form in (gold, answer)]
        changes = all(percents) and all(
            name.startswith(UNKNOWN) for name, _ in (*(gold.unit or ()), *(answer.unit or ()))
        )
        if not changes and ((gold.unit and percents[1]) or (answer.unit and percents[0])):
            return False  # 30\% for 30 degrees
        if gold.number is not None:
            # Arithmetic that is left to do, such as the question itself, is not an answer where a number is asked for.
            if self.base and answer.kind == "word" and _WHOLE.fullmatch(gold.text):
                return answer.text == f"{gold.text}_{self.base}"  # 42_5 for 42
            if answer.number is None:
                return False
            return equal_numbers(gold.number, answer.number, self.rounded_gold) or self.is_rounded(gold, answer)
        if self.is_rounded(gold, answer):
            return True
        return self.equal_words_or_formulas(gold, answer)

    def equal_chains(self, gold: Form, answer: Form) -> bool:
        """Compare what stands between the equals signs: `a=2b=3c` says more than `a=3c`, `A=\\frac12bh=6` no more than `A=6`."""
        constants = [part for part in answer.chain if CONSTANT.fullmatch(part)]
        if "=" in (gold.name or "") and len(constants) < len(answer.chain):
            return False
        if CONSTANT.fullmatch(gold.text):
            return all(self.equal_formulas(gold.text, part) for part in constants)
        if not all(self.equal_formulas(gold.text, part) for part in gold.chain):
            return len(gold.chain) == len(answer.chain) and all(map(self.equal_formulas, gold.chain, answer.chain))
        return all(self.equal_formulas(gold.text, part) for part in answer.chain if not _BIG.search(part))

    def fits(self, text: str, approximation: Number) -> bool:
        """Return whether a decimal is a value cut off or rounded at its last place."""
        value, place = approximation.value, approximation.last_place or 1
        halves = rf"\lfloor \frac{{2({text})}}{{{place}}}-({2 * value / place})\rfloor"
        return any(self.same_formula(halves, number) for number in ("0", "-1", "1" if value >= 0 else "-2"))

    def is_rounded(self, gold: Form, answer: Form) -> bool:
        """Return whether an answer is an exact gold rounded to the places that the question asks for."""
        number, places = answer.number, self.places
        if number is None or places is None or number.percent or not CONSTANT.fullmatch(gold.text):
            return False
        scaled = number.value * 10**places
        if (number.last_place or 1) != Fraction(1, 10**places) or scaled.denominator != 1:
            return False
        if gold.number is not None and (gold.number.last_place or gold.number.value.denominator == 1):
            return False  # rounded already
        return self.same_formula(rf"\lfloor {10**places}({gold.text})+\frac{{1}}{{2}}\rfloor", str(scaled))

    def units_agree(self, gold: Unit | None, answer: Unit | None) -> bool:
        """Return whether a unit of a list, or words that the gold or the question have, stand behind the answer, or nothing."""
        known = {name for name, _ in gold or ()} | counted_words(self.question)
        if any(name.startswith(UNKNOWN) and name not in known for name, _ in answer or ()):
            return False
        if gold is None or answer is None or gold == answer:
            return True
        if "unit" in dict(gold) | dict(answer):  # square units
            return sum(power for _, power in gold) == sum(power for _, power in answer)
        ours, theirs = {*gold}, {*answer}  # "12 apples" for "12 red apples"
        return (ours < theirs or theirs < ours) and all(name.startswith(UNKNOWN) for name, _ in ours ^ theirs)

    def equal_converted(self, gold: Form, answer: Form) -> bool:
        """Compare numbers in different units that measure the same."""
        if not gold.unit or not answer.unit:
            return False
        (factor, base), (other, other_base) = in_base_units(gold.unit), in_base_units(answer.unit)
        return (
            base == other_base and gold.number is not None and answer.number is not None
            and gold.number.value * factor == answer.number.value * other
        )  # fmt: skip

    def equal_words_or_formulas(self, gold: Form, answer: Form) -> bool:
        marked = "word" in (gold.kind, answer.kind)
        if gold.kind == "word" and _NUMERAL.fullmatch(gold.text):
            return answer.text in (gold.text, gold.text.partition("_")[0])  # the question names the base
        if (key := _word_key(gold, marked)) is not None and key == _word_key(answer, marked):
            return True
        # AB and BA may be two segments, and letters in another order are another word.
        if marked or (_CAPITALS.fullmatch(gold.text) and _CAPITALS.fullmatch(answer.text)) or _are_words(gold, answer):
            return False
        return self.equal_formulas(gold.text, answer.text)

    def equal_renamed(self, gold: Form, answer: Form) -> bool:
        """Compare functions under another variable, `f(t)=t+1` and `f(x)=x+1`, and equations of two names turned round."""
        ours, theirs = (NAME_OF_FUNCTION.fullmatch(form.name or "") for form in (gold, answer))
        if ours and theirs:
            if ours[1] != theirs[1] or ours[2] in re.findall(rf"\\[a-zA-Z]+|{re.escape(ours[2])}", answer.text):
                return False
            renamed = re.compile(rf"\\[a-zA-Z]+|{re.escape(theirs[2])}").sub(
                lambda name: f"{ours[2]} " if name[0] == theirs[2] else name[0], answer.text
            )
            return self.equal_formulas(gold.text, renamed)
        if gold.number is not None or answer.number is not None or CONSTANT.fullmatch(gold.text):
            return False
        one, other = _equation(gold), _equation(answer)
        return one is not None and other is not None and self.equal_formulas(one, other)

    def equal_formulas(self, gold: str, answer: str) -> bool:
        gold, answer = gold.replace(GROUP, ""), answer.replace(GROUP, "")
        if gold == answer or len(answer) > max(80, 3 * len(gold)):
            return gold == answer
        if _UNIT_VECTOR.search(gold + " " + answer):
            gold, answer = (_UNIT_VECTOR.sub(lambda match: match[1] or match[2], text) for text in (gold, answer))
        ours, theirs = _PERIOD.search(gold), _PERIOD.search(answer)
        if ours and theirs and ours[1] not in answer and theirs[1] not in gold:  # n or k, for any integer
            answer = re.sub(rf"(?<![a-zA-Z\\]){theirs[1]}(?![a-zA-Z])", ours[1], answer)
        return self.same_formula(_SLOPPY_POWER.sub(r"^{\1}", gold), answer)  # x^10 is x^{1}0 in LaTeX, but in golds


def _is_left_to_solve(left: str) -> bool:
    r"""Return whether a left side of an equation is a constant, or made of one variable: `\pi`, `x^2`, `\frac{x}{2}`."""
    names = {text for kind, text in tokens_of(left) if kind == "name"}
    return len(names) == 1


def is_rounded(golds: Sequence[str]) -> bool:
    """Return whether all ground truths are decimals of so many places that they are rounded, such as 0.6666666667."""
    forms = [read_forms(normalize(gold))[0] for gold in golds]
    return bool(forms) and all(form.number is not None and has_many_places(form.number) for form in forms)


def _are_words(gold: Form, answer: Form) -> bool:
    """Return whether both are runs of letters that read like words, of which another order is another word: "odd" and "ddo"."""
    if "".join(sorted(set(gold.text))) == gold.text and gold.text not in CHANGING_WORDS:
        return False  # a product such as "abc"
    texts = (gold.text, answer.text)
    return all(text.isalpha() and text.isascii() and not {*"eiou"}.isdisjoint(text.casefold()) for text in texts)


def _in_degrees(form: Form) -> str:
    r"""Return a formula without its degree signs, `180-2x` for `180^\circ-2x`; "" where these are not all of the same use."""
    plain = form.number is None and form.kind == "value" and form.unit in (None, _DEGREE)
    return form.text.replace(r"^\circ", "") if plain and not _NO_DEGREES.search(form.text) else ""


def _in_radians(form: Form) -> str:
    return rf"({form.text})\cdot\frac{{\pi}}{{180}}" if form.unit == _DEGREE else form.text


def _inequality(form: Form) -> str:
    """Return a relation, or the inequality that was read as a set, as written."""
    return form.text if form.kind == "relation" or (form.items and form.kind not in ("choice", "ratio")) else ""


def _equation(form: Form) -> str | None:
    named = f"{form.name}={form.text}" if form.name is not None else None
    return form.text if form.kind == "relation" else named


def _word_key(form: Form, marked: bool) -> str | None:
    r"""Words count without case, article and punctuation; a single letter is a symbol or a choice, and its case counts.

    marked: one of the two strings compared is written as `\text{...}`.
    """
    text = form.text.replace(" ", "") if _CAPITALS.fullmatch(form.text) else form.text
    if form.kind != "word" and not _PLAIN_WORDS.fullmatch(text):
        return None
    key = _PUNCTUATION.sub(" ", text).strip()
    if marked:
        key = _ARTICLE.sub("", key, count=1)
    known = key.casefold() in CHANGING_WORDS
    return key.casefold() if known or len(key) >= (2 if marked else _MIN_WORD_CHARS) else key
