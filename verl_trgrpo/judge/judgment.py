"""Judge one response: read its answer, compare it with the ground truths, and say what was found."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from typing import Any

from verl_trgrpo.judge.answer_form import ANSWER_FORMS, AnswerForm, asked_form, prompt_text, read_answer, read_boxes
from verl_trgrpo.judge.answers import read_forms
from verl_trgrpo.judge.equality import alternatives, equal_answers, formulas
from verl_trgrpo.judge.finished import Fault, fault_of
from verl_trgrpo.judge.golds import GroundTruthError, gold_text, golds_of
from verl_trgrpo.judge.letters import changes_of, renamed
from verl_trgrpo.judge.processes import Judges
from verl_trgrpo.judge.question import Asked, read_question
from verl_trgrpo.judge.spelling import normalize

formula_judges = Judges("verl_trgrpo.judge.formulas:same_formula", keep=True)
"""This process's judges of formulas."""

# Four words in a row are a sentence, whose letters would otherwise be read as a product.
_BARE_LOG = re.compile(r"\\log(?![a-zA-Z_])")  # \log
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}(?:\s+[A-Za-z]{2,}){3}")  # so the answer is
_LETTER_BEHIND = re.compile(
    r"(?P<value>.+?)(?:\\text\{ ?)?(?:\(|\(?(?:option|choice) ?\(?)(?P<letter>[A-J])\){0,2}\}?"
)  # 7(B); 7\text{ option B}
_NO_ANSWER = re.compile(r"\b(?:may|can|will) vary\b|\bunclear\b", re.IGNORECASE)  # answers may vary; Unclear for n=1


@dataclass(frozen=True)
class Judgment:
    """What :func:`judge_answer` found.

    Args:
        right: the answer equals one of the ground truths.
        answer: the answer as the response has it; None if there is none in the wanted place.
        gold_understood: a ground truth can be read, or the answer is right; if not, `right` False does not mean "wrong".
        timed_out: the comparison was stopped at its limit of time or memory, so that `right` False means "unknown".
        fault: what keeps an answer of the right value from being right: "restated" if it is a formula of the question or a
            trivial rewriting of it, "unfinished" if work is left to do or it does not have the form that the question asks for,
            "unit" if it has another unit than the question asks for.
    """

    right: bool
    answer: str | None = None
    gold_understood: bool = True
    timed_out: bool = False
    fault: Fault | None = None


def judge_answer(
    response: str,
    ground_truth: Any,
    question: str | Sequence[Mapping[str, Any]] | None = None,
    *,
    answer_form: AnswerForm | None = None,
    thinking_opened: bool = False,
    rounded_gold: bool = False,
    natural_log: bool = False,
    time_limit: float = 4.0,
) -> Judgment:
    r"""Judge whether a response states the right answer to a mathematical question.

    >>> judge_answer(r"So the answer is $\boxed{\dfrac{1}{2}}$.", "0.5").right
    True
    >>> judge_answer(r"The answer is \boxed{1 \text{ or } 2}.", "1").right
    False

    Args:
        response: the decoded response without the prompt. Any string; the time is linear in its length.
        ground_truth: str, int, float, or a list, tuple or array of those, also a list of strings as text, of which any
            may match; or a mapping with one of them under `target`.
        question: the prompt, as a string or as chat messages; None if it is not known.
        answer_form: where the answer is read, one of box, line, tags and hashes; None for the form that the question asks
            for, and a box if it asks for none of them or is not known.
        thinking_opened: the rendered prompt ends in ``<think>``, so a response without ``</think>`` was cut off in its
            reasoning.
        rounded_gold: a decimal ground truth such as 9.6 or 8.7e8 is a rounded value (Minerva): an answer with more
            digits is right if it rounds to it.
        natural_log: ``\\log`` without a base is the natural one in the gold's source, unless the question names base 10;
            without it the question and the gold decide.
        time_limit: seconds of CPU time that comparing formulas may take, above 0 and at most 60.

    Raises:
        GroundTruthError: a ground truth of another type, empty, or with unbalanced braces.
        ValueError: a time limit out of range, or an unknown form.
        RuntimeError: the process that compares formulas cannot be started.
    """
    if not 0 < time_limit <= 60:
        raise ValueError(f"time_limit is {time_limit!r}; it must be above 0 and at most 60 seconds")
    if answer_form not in (None, *ANSWER_FORMS):
        raise ValueError(f"answer_form={answer_form!r}: unknown; use one of {', '.join(ANSWER_FORMS)}")
    golds = [gold_text(gold) for gold in golds_of(ground_truth)]
    if not golds:
        raise GroundTruthError("the ground truth is an empty list; it must hold at least one acceptable answer")
    text = prompt_text(question)
    form = answer_form or asked_form(text) or "box"
    answer = read_answer(response, form, thinking_opened)
    asked = read_question(text)
    time_left = time_limit

    def same_formula(gold: str, answer: str) -> bool:
        nonlocal time_left
        equal, seconds = formula_judges.ask(gold, answer, limit=time_left)
        time_left = max(time_left - seconds, 1e-3)
        return bool(equal)

    def equal(gold: str, answer: str) -> bool:
        if asked.has_natural_log(gold, natural_log):
            gold, answer = _BARE_LOG.sub(r"\\ln ", gold), _BARE_LOG.sub(r"\\ln ", answer)
        return equal_answers(
            [gold], answer, same_formula, rounded_gold=rounded_gold, question=text, ordered="ordered" in asked.asks,
            in_question=asked.has_formula, options=dict(asked.options), places=asked.places, base=asked.base,
        ) or any(starmap(same_formula, changes_of(gold, answer, asked)))  # fmt: skip

    faults: list[Fault] = []
    try:
        for gold, candidate in (
            _candidates(golds, answer, response, thinking_opened, asked) if answer is not None else ()
        ):
            if equal(gold, candidate):
                fault = fault_of(gold, candidate, asked)
                if fault is None:
                    return Judgment(True, answer)
                faults.append(fault)
    except TimeoutError:
        return Judgment(False, answer, timed_out=True)
    if faults:
        return Judgment(False, answer, fault=faults[0])
    return Judgment(False, answer, gold_understood=any(_understood(gold, time_limit) for gold in golds))


def _candidates(
    golds: Sequence[str], answer: str, response: str, thinking_opened: bool, asked: Asked
) -> Iterator[tuple[str, str]]:
    """Yield what may be equal: each gold and the answer; with the letter of an option in front of its value; the option of a
    letter, where the other side has none; with its constants renamed; and all boxes, where several are asked."""
    for gold in golds:
        yield gold, answer
    options = dict(asked.options)
    if (match := _LETTER_BEHIND.fullmatch(normalize(answer))) and options.get(match["letter"]):
        for gold in golds:
            yield gold, f"({match['letter']}) {match['value']}"
    for gold in golds if options else ():
        ours, theirs = _letter(gold), _letter(answer)
        if (ours in options) != (theirs in options):
            pair = (asked.option_behind(ours), answer) if ours in options else (gold, options[theirs])
            yield from [pair] * all(pair)
    for gold in golds:
        for other in renamed(gold, answer, asked):
            yield gold, other
    if "several" in asked.asks and len(boxes := read_boxes(response, thinking_opened)) > 1:
        for gold in golds:
            yield gold, ", ".join(boxes)


def _letter(text: str) -> str:
    """Return the letter of a choice that stands alone: `B` of `B` and `\\text{(B)}`."""
    form = read_forms(normalize(text))[0]
    return "" if form.items else form.text


@lru_cache(maxsize=4096)
def _understood(gold: str, limit: float) -> bool:
    """Return whether all formulas of a ground truth can be read. Cached because every sample of a group has the same ones."""
    if _NO_ANSWER.search(gold):
        return False
    try:
        return all(
            not _PROSE.search(text) and formula_judges.ask(text, text, limit=limit)[0]
            for text in formulas(read_forms(normalize(alternatives(gold)[0]))[0])
        )
    except TimeoutError:
        return True
