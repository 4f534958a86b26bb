"""Whether an answer equals a ground truth."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from verl_trgrpo.tasks.math.reading import LIST, RELATION, UNION, WORD, Form, Number, normalize, read_forms

SameFormula = Callable[[str, str], bool]

# What an honest answer has no more of than its ground truth: work left to do, long numbers, towers of powers.
_LEFT_TO_DO = re.compile(
    r"\\(?:i*int|oint|sum|prod|lim|begin)(?![a-zA-Z])|d/d|\\frac\{d|[0-9]{31}"
    r"|\^\{?[^{}^]*\^\{?[^{}^]*\^|[0-9]\)*\^\{?-?[0-9]{5,}|[0-9]{4,}\)*!|!\)*!|\^\{?\(*[0-9]+\)*(?:\^|!)"
)
_NO_WORD = re.compile(r"[^\w]+")
_PLAIN_WORDS = re.compile(r"[^\W\d_]|[^\W\d_][^\W\d_' ]*[^\W\d_]")
_CAPITALS = re.compile(r"[A-Z](?: ?[A-Z])+")
_MIN_WORD_CHARS = 4
"""Without `\\text`, so many letters are a word, fewer a product such as `mgh`."""
_CONSTANT = re.compile(r"(?:\\(?:frac|sqrt|pi|cdot|times)(?![a-zA-Z])|[^a-zA-Z\\])+")


def compare(golds: Iterable[str], answer: str, same_formula: SameFormula, *, rounded_gold: bool = False) -> bool:
    """Return whether the answer equals one of the ground truths, all as written.

    Shape, words and numbers decide most; `same_formula` is asked about two LaTeX formulas, the gold's and the answer's.
    With `rounded_gold`, an answer with more digits than a decimal gold is rounded to the gold's last place first.
    """
    answer_text = normalize(answer)
    if not answer_text:  # a gold that is no answer either, such as "$", is right as it stands all the same
        return bool(answer.strip()) and answer.strip() in map(str.strip, golds)
    texts = [normalize(gold) for gold in golds]
    if answer_text in texts:
        return True
    comparison = _Comparison(rounded_gold, same_formula)
    answers = read_forms(answer_text)
    return any(comparison.forms(gold, form) for text in texts for gold in read_forms(text) for form in answers)


def formulas(form: Form) -> list[str]:
    """Return the texts in `form` that only a parser of formulas can understand."""
    if form.items:
        return [text for item in form.items for text in formulas(item)]
    return [] if form.number is not None or form.kind == WORD else [form.text]


@dataclass(frozen=True)
class _Comparison:
    rounded_gold: bool
    same_formula: SameFormula

    def forms(self, gold: Form, answer: Form) -> bool:
        if gold.items and answer.items and _names_differ(gold, answer):
            return False  # before a set of one value loses its name: A={5} and B={5}
        # A set of one value is that value.
        gold, answer = (f.items[0] if f.kind == LIST and len(f.items) == 1 else f for f in (gold, answer))
        if not gold.items and not answer.items:
            return self.values(gold, answer)
        if not gold.items or not answer.items or _names_differ(gold, answer):
            return False
        same_kind = gold.kind == answer.kind
        if gold.kind == UNION and answer.kind == LIST:
            # "x<2 or x>3"; neither a list of points nor conditions on two variables are a union.
            names = {item.name if item.items else None for item in answer.items}
            same_kind = len(names) == 1 and None not in names and gold.name in (None, *names)
        if same_kind and gold.kind in (LIST, UNION):
            return self.unordered(gold.items, answer.items)
        if same_kind or (gold.kind == LIST and answer.kind == "()"):
            return len(gold.items) == len(answer.items) and all(map(self.forms, gold.items, answer.items))
        return False

    def unordered(self, gold: Sequence[Form], answer: Sequence[Form]) -> bool:
        """Equality is transitive, so taking the first equal item of those left is as good as any."""
        left = list(answer)
        for item in gold:
            position = next((place for place, other in enumerate(left) if self.forms(item, other)), None)
            if position is None:
                return False
            del left[position]
        return not left

    def values(self, gold: Form, answer: Form) -> bool:
        if answer.last and gold.name is None and gold.kind != RELATION and _CONSTANT.fullmatch(gold.text):
            return self.forms(gold, answer.last)  # AB=10 and 10
        if (gold.kind == RELATION) != (answer.kind == RELATION):  # y=-2x and 2x+y=0
            one, other = _equation(gold), _equation(answer)
            left_to_find = gold.name is not None and _CONSTANT.fullmatch(gold.text)  # x=5 and 2x-10=0
            return not left_to_find and one is not None and other is not None and self.formulas(one, other)
        if _names_differ(gold, answer):
            return False
        if gold.unit and answer.unit and gold.unit != answer.unit:
            return False
        if gold.text == answer.text:
            return True
        if gold.number is not None:
            # Arithmetic that is left to do, such as the question itself, is no answer where a number is asked for.
            return answer.number is not None and self.numbers(gold.number, answer.number)
        marked = WORD in (gold.kind, answer.kind)
        if (key := _word_key(gold, marked)) is not None and key == _word_key(answer, marked):
            return True
        # AB and BA may be two segments.
        if marked or (_CAPITALS.fullmatch(gold.text) and _CAPITALS.fullmatch(answer.text)):
            return False
        return self.formulas(gold.text, answer.text)

    def numbers(self, gold: Number, answer: Number) -> bool:
        """Without a percent sign in common, `50%` is both 50 and 0.5: the sign is often part of the question."""
        values = {answer.value}
        if answer.percent and not gold.percent:
            values.add(answer.value / 100)
        if gold.percent and not answer.percent:
            values.add(answer.value * 100)
        if answer.value.denominator == 1 and gold.literal_integer and not answer.literal_integer:
            return False
        # An answer with fewer digits is a multiple of the gold's last place, so it is never this near without being equal.
        near = gold.last_place / 2 if self.rounded_gold and gold.last_place else 0
        return any(abs(value - gold.value) <= near for value in values)

    def formulas(self, gold: str, answer: str) -> bool:
        long = len(answer) > max(80, 3 * len(gold))
        hard = len(_LEFT_TO_DO.findall(answer)) > len(_LEFT_TO_DO.findall(gold))
        return not long and not hard and self.same_formula(gold, answer)


def _names_differ(gold: Form, answer: Form) -> bool:
    return gold.name is not None and answer.name is not None and gold.name != answer.name


def _equation(form: Form) -> str | None:
    named = f"{form.name}={form.text}" if form.name is not None else None
    return form.text if form.kind == RELATION else named


def _word_key(form: Form, marked: bool) -> str | None:
    r"""Words count without case and punctuation; a single letter is a symbol or a choice, and its case counts.

    marked: one of the two texts compared is written as `\text{...}`.
    """
    text = form.text.replace(" ", "") if _CAPITALS.fullmatch(form.text) else form.text
    if form.kind != WORD and not _PLAIN_WORDS.fullmatch(text):
        return None
    key = _NO_WORD.sub(" ", text).strip()
    return key.casefold() if len(key) >= (2 if marked else _MIN_WORD_CHARS) else key
