"""Whether an answer equals a ground truth, as far as the shape and plain numbers decide it.

Verdicts have three values: True, False, and None where two formulas have to be compared. With a function that compares
formulas (the judge process has one) there is no None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from verl_trgrpo.tasks.math.reward.form import LIST, UNION, Atom, Form, Group, read_forms
from verl_trgrpo.tasks.math.reward.latex import nesting, normalize
from verl_trgrpo.tasks.math.reward.number import equal_numbers

SameFormula = Callable[[str, str], bool]

MIN_FORMULA_CHARS, LENGTH_RATIO = 80, 3
"""An answer formula may be this long, or this many times as long as the ground truth."""
MAX_FORMULA_NESTING = 5
MAX_FORMULA_DIGITS = 30
_UNFINISHED = re.compile(r"\\(?:i*int|oint|sum|prod|lim|begin)(?![a-zA-Z])|d/d|\\frac\{d")
_TOWER = re.compile(
    r"\^\{?[^{}^]*\^\{?[^{}^]*\^|[0-9]\)*\^\{?-?[0-9]{5,}|[0-9]{4,}\)*!|!\)*!|\^\{?\(*[0-9]+\)*(?:\^|!)"
)
_NO_WORD = re.compile(r"[^\w]+")
_PLAIN_WORDS = re.compile(r"[^\W\d_]|[^\W\d_][^\W\d_' ]*[^\W\d_]")
_CAPITALS = re.compile(r"[A-Z](?: ?[A-Z])+")
_MIN_WORD_CHARS = 4
"""Without `\\text`, so many letters are a word, fewer a product such as `mgh`."""
_CONSTANT = re.compile(r"(?:\\(?:frac|sqrt|pi|cdot|times)(?![a-zA-Z])|[^a-zA-Z\\])+")


def compare(
    golds: Iterable[str], answer: str, *, rounded_gold: bool, same_formula: SameFormula | None = None
) -> bool | None:
    """Return whether the answer equals one of the ground truths (texts as written), None if formulas must decide it."""
    golds = tuple(golds)
    answer_text = normalize(answer)
    if not answer_text:  # a gold that is no answer either, such as "$", is right as it stands all the same
        return bool(answer.strip()) and answer.strip() in map(str.strip, golds)
    undecided = False
    answers = read_forms(answer_text)
    for gold in golds:
        gold_text = normalize(gold)
        if gold_text == answer_text:
            return True
        comparison = _Comparison(rounded_gold, same_formula)
        for gold_form in read_forms(gold_text):
            for answer_form in answers:
                verdict = comparison.forms(gold_form, answer_form)
                if verdict:
                    return True
                undecided |= verdict is None
    return None if undecided else False


def formulas(form: Form) -> list[str]:
    """Return the texts in `form` that only a parser of formulas can understand."""
    if isinstance(form, Group):
        return [text for item in form.items for text in formulas(item)]
    return [] if form.number is not None or form.word else [form.text]


class _Comparison:
    def __init__(self, rounded_gold: bool, same_formula: SameFormula | None) -> None:
        self.rounded_gold = rounded_gold
        self.same_formula = same_formula

    def forms(self, gold: Form, answer: Form) -> bool | None:
        if isinstance(gold, Group) and isinstance(answer, Group) and _names_differ(gold, answer):
            return False  # before a set of one value loses its name: A={5} and B={5}
        gold, answer = _unwrap(gold), _unwrap(answer)
        if isinstance(gold, Atom) and isinstance(answer, Atom):
            return self.atoms(gold, answer)
        if _names_differ(gold, answer) or isinstance(gold, Atom) or isinstance(answer, Atom):
            return False
        if gold.kind == UNION and answer.kind == LIST:
            # "x<2 or x>3"; neither a list of points nor conditions on two variables are a union.
            names = {item.name if isinstance(item, Group) else None for item in answer.items}
            same_kind = len(names) == 1 and None not in names and gold.name in (None, *names)
        else:
            same_kind = gold.kind == answer.kind
        if same_kind and gold.kind in (LIST, UNION):
            return self.unordered(gold.items, answer.items)
        if same_kind or (gold.kind == LIST and answer.kind == "()"):
            return self.ordered(gold.items, answer.items)
        return False

    def ordered(self, gold: Sequence[Form], answer: Sequence[Form]) -> bool | None:
        if len(gold) != len(answer):
            return False
        verdicts = []
        for gold_item, answer_item in zip(gold, answer, strict=True):
            verdicts.append(self.forms(gold_item, answer_item))
            if verdicts[-1] is False:
                return False
        return None if None in verdicts else True

    def unordered(self, gold: Sequence[Form], answer: Sequence[Form]) -> bool | None:
        """Equality is transitive, so taking the first equal item of those left is as good as any."""
        if len(gold) != len(answer):
            return False
        left = list(answer)
        undecided = False
        for gold_item in gold:
            verdicts = [self.forms(gold_item, item) for item in left]
            if True in verdicts:
                del left[verdicts.index(True)]
            elif None in verdicts:
                undecided = True
            else:
                return False
        return None if undecided else True

    def atoms(self, gold: Atom, answer: Atom) -> bool | None:
        if answer.value is not None and gold.name is None and not gold.relation and _CONSTANT.fullmatch(gold.text):
            return self.forms(gold, answer.value)  # AB=10 and 10
        if gold.relation != answer.relation and _whole(gold) and _whole(answer):
            if gold.name is not None and _CONSTANT.fullmatch(gold.text):
                return False  # x=5 and 2x-10=0: the value is left to find
            return self.formulas(_equation(gold), _equation(answer))  # y=-2x and 2x+y=0
        if gold.relation != answer.relation or _names_differ(gold, answer):
            return False
        if gold.unit and answer.unit and gold.unit != answer.unit:
            return False
        if gold.text == answer.text:
            return True
        if gold.number is not None:
            # Arithmetic that is left to do, such as the question itself, is no answer where a number is asked for.
            return answer.number is not None and equal_numbers(
                gold.number, answer.number, rounded_gold=self.rounded_gold
            )
        marked = gold.word or answer.word
        if (key := _word_key(gold, marked)) is not None and key == _word_key(answer, marked):
            return True
        # AB and BA may be two segments.
        if marked or (_CAPITALS.fullmatch(gold.text) and _CAPITALS.fullmatch(answer.text)):
            return False
        return self.formulas(gold.text, answer.text)

    def formulas(self, gold: str, answer: str) -> bool | None:
        if _too_costly(gold, answer):
            return False
        return self.same_formula(gold, answer) if self.same_formula else None


def _unwrap(form: Form) -> Form:
    """A set of one value is that value."""
    return form.items[0] if isinstance(form, Group) and form.kind == LIST and len(form.items) == 1 else form


def _names_differ(gold: Form, answer: Form) -> bool:
    return gold.name is not None and answer.name is not None and gold.name != answer.name


def _whole(atom: Atom) -> bool:
    return atom.relation or atom.name is not None


def _equation(atom: Atom) -> str:
    return atom.text if atom.relation else f"{atom.name}={atom.text}"


def _word_key(atom: Atom, marked: bool) -> str | None:
    r"""Words count without case and punctuation; a single letter is a symbol or a choice, and its case counts.

    marked: one of the two texts compared is written as `\text{...}`.
    """
    text = atom.text.replace(" ", "") if _CAPITALS.fullmatch(atom.text) else atom.text
    if not atom.word and not _PLAIN_WORDS.fullmatch(text):
        return None
    key = _NO_WORD.sub(" ", text).strip()
    return key.casefold() if len(key) >= (2 if marked else _MIN_WORD_CHARS) else key


def _too_costly(gold: str, answer: str) -> bool:
    """Whether an answer is too long, deep or unfinished to be an honest way to write this ground truth."""
    return (
        len(answer) > max(MIN_FORMULA_CHARS, LENGTH_RATIO * len(gold))
        or nesting(answer) > max(MAX_FORMULA_NESTING, nesting(gold) + 2)
        or max(map(len, re.findall(r"[0-9]+", answer)), default=0) > MAX_FORMULA_DIGITS
        or len(_UNFINISHED.findall(answer)) > len(_UNFINISHED.findall(gold))
        or (_TOWER.search(answer) is not None and _TOWER.search(gold) is None)
    )
