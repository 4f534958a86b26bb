"""Check ground truths by their rewards: a response that states one gets full marks, and equal ones are taken for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from verl_trgrpo.common.findings import Level
from verl_trgrpo.common.text import first_line, shorten
from verl_trgrpo.data.questions.context import DataQuestion, Remark
from verl_trgrpo.data.questions.single_rows import has_source
from verl_trgrpo.data.rows import RawRow, contains, extra_info_of, ground_truth_of
from verl_trgrpo.judge.answer_form import ANSWER_FORMS, AnswerForm, asked_form, prompt_text, read_answer, state_answer
from verl_trgrpo.judge.golds import listed
from verl_trgrpo.tasks import has_reward, reference_response_of, score_response
from verl_trgrpo.tasks.registry import alternatives_of, guessed_reward, mismatch_of, task_key_of, unknown_source
from verl_trgrpo.tasks.reward_input import reward_input

# Neither the answer of a row nor close to one.
_WRONG = "-98765.4321"

# The forms in which rewards usually expect an answer, for prompts that ask for none.
USUAL_FORMS: tuple[AnswerForm, ...] = ("tags", "box")


@dataclass(frozen=True)
class TaskKnowledge:
    """What the registered tasks know of rows, as :class:`~verl_trgrpo.data.questions.context.Tasks` describes it.

    Args:
        default: data source whose reward scores those that have none.
        has_rewards: their rewards score the rows; False for rows of a run with other rewards.
    """

    default: str | None = None
    has_rewards: bool = True

    def scores(self, row: RawRow) -> bool:
        """Return whether one of the rewards scores the row."""
        return self.has_rewards and has_source(row) and has_reward(row["data_source"], self.default)

    def key(self, row: RawRow) -> str | None:
        """Return what the row shares with those that ask the same in other words."""
        return task_key_of(row)

    def answers(self, row: RawRow) -> list[str]:
        """Return the answers that the ground truth accepts."""
        return answers_of(row, self.default)

    def equal(self, row: RawRow, one: Any, other: Any) -> bool:
        """Return whether the reward gives full marks to one ground truth for the other, either way."""
        pairs = [(one, other), (other, one)] if self.has_rewards else []
        return any(accepts(row, *pair, self.default) for pair in pairs)

    def source_remarks(self, row: RawRow) -> Iterator[Remark]:
        """Ask whether there is a reward for the data source."""
        if not self.has_rewards or not has_source(row):
            return
        source = row["data_source"]
        if not self.scores(row):
            yield DataQuestion.SOURCE, Level.ERROR, f"{unknown_source(source)}, or register one (docs/rewards.md)"
            yield DataQuestion.GOLD, Level.NOT_CHECKED, f"no reward for {shorten(source)}; choose or register one"
        elif guess := guessed_reward(source, self.default):
            yield DataQuestion.SOURCE, Level.WARNING, guess

    def truth_remarks(self, row: RawRow) -> Iterator[Remark]:
        """Ask whether the reward gives a response with the ground truth full marks, and a wrong one less.

        Also ask whether the ground truth can be that of the prompt.
        """
        if not self.scores(row):
            return
        source = row["data_source"]
        try:
            yield from filter(
                None, [_gold_remark(row, source, self.default), _foreign_remark(row, source, self.default)]
            )
        except ImportError as error:
            message = f"the reward of {source!r} cannot be imported ({first_line(error)}); install what it needs"
            yield DataQuestion.GOLD, Level.NOT_CHECKED, message
        except Exception as error:  # a reward may be anybody's code; it would raise in training, too
            message = f"the reward of {source!r} raises {type(error).__name__}: {first_line(error)}"
            yield DataQuestion.GOLD, Level.ERROR, message


def _foreign_remark(row: RawRow, source: str, default: str | None) -> Remark | None:
    """Return a remark if the ground truth is another prompt's: by the task, or by question and solution of `extra_info`."""
    prompt, truth, extra_info = prompt_text(row.get("prompt")), ground_truth_of(row), extra_info_of(row)
    if reason := mismatch_of(source, prompt, truth, extra_info, default):
        return (
            DataQuestion.TRUTH,
            Level.ERROR,
            f"{reason}; build the file again, prompts and ground truths may be shifted",
        )
    question = extra_info.get("question")
    if isinstance(question, str) and not contains(prompt, question):
        reason = f"extra_info.question {shorten(question)} is not in the prompt"
        return (
            DataQuestion.TRUTH,
            Level.WARNING,
            f"{reason}; correct the row, or build the file again if rows are shifted",
        )
    for key in ("answer", "solution"):
        solution = extra_info.get(key)
        stated = _final_answer(solution) if isinstance(solution, str) else None
        if stated and not accepts(row, truth, stated, default):
            reason = f"extra_info.{key} ends in {shorten(stated)}, the ground truth is {shorten(truth)}"
            return (
                DataQuestion.TRUTH,
                Level.WARNING,
                f"{reason}; correct one, or build the file again if rows are shifted",
            )
    return None


def _final_answer(solution: str) -> str | None:
    """Return what a solution in the form of GSM8K or MATH states as its answer, or None."""
    return read_answer(solution, "hashes") or read_answer(solution, "box")


def _gold_remark(row: RawRow, source: str, default: str | None) -> Remark | None:
    """Score responses that state the ground truth in the form that the prompt asks for; return a remark unless one is right.

    Raises:
        GroundTruthError: the reward cannot read the ground truth.
    """
    asked = asked_form(row.get("prompt"))
    found = _stated_gold_remark(row, source, asked, default)
    if found and found[1] is Level.ERROR and asked:
        for form in ANSWER_FORMS:
            if form != asked and _stated_gold_remark(row, source, form, default) is None:
                forms = f"{state_answer('...', asked)}, the reward of {source!r} reads {state_answer('...', form)}"
                return (
                    DataQuestion.GOLD,
                    Level.ERROR,
                    f"the prompt asks for {forms}; change the prompt or the data source",
                )
    return found


def _stated_gold_remark(row: RawRow, source: str, form: AnswerForm | None, default: str | None) -> Remark | None:
    """Score responses that state the ground truth in a form; return a remark unless one gets `acc` 1.0 and a wrong one less."""
    truth = ground_truth_of(row)
    given = reward_input(extra_info_of(row), row.get("prompt"))
    shown, stated = shorten(truth), f" in the form {state_answer('...', form)}" if form else ""
    found = DataQuestion.GOLD, Level.ERROR, f"the ground truth {shown} contains no answer"
    for response in _gold_responses(source, truth, form, default):
        if response is None:
            return DataQuestion.GOLD, Level.NOT_CHECKED, f"{source} has no reference response for some rows"
        verdict = score_response(source, response, truth, given, default_reward=default)
        if verdict["acc"] == 1.0:
            return _wrong_remark(row, source, form, default)
        if verdict["gold_unparseable"]:
            found = (
                DataQuestion.GOLD,
                Level.ERROR,
                f"the reward of {source!r} does not understand the ground truth {shown}",
            )
        elif verdict["timed_out"]:
            found = DataQuestion.GOLD, Level.WARNING, f"the reward of {source!r} timed out on the ground truth {shown}"
        else:
            found = (
                DataQuestion.GOLD,
                Level.ERROR,
                f"the ground truth {shown} as an answer{stated} gets acc {verdict['acc']}",
            )
    return found


def _wrong_remark(row: RawRow, source: str, form: AnswerForm | None, default: str | None) -> Remark | None:
    """Score responses with a wrong answer; return a remark if one is right, or tells that the ground truth is not understood."""
    truth = ground_truth_of(row)
    given, shown = reward_input(extra_info_of(row), row.get("prompt")), shorten(truth)
    for each in [form] if form else USUAL_FORMS:
        verdict = score_response(source, state_answer(_WRONG, each), truth, given, default_reward=default)
        if verdict["acc"] == 1.0:
            message = f"the reward of {source!r} gives acc 1.0 to {_WRONG}, too, for the ground truth {shown}; correct the reward"
            return DataQuestion.GOLD, Level.ERROR, message
        if verdict["gold_unparseable"]:
            reason = f"the reward of {source!r} does not understand the ground truth {shown} and compares it literally"
            return DataQuestion.LITERAL, Level.WARNING, f"{reason}: answers in other words get 0"
    return None


def _gold_responses(source: Any, truth: Any, form: AnswerForm | None, default: str | None) -> Iterator[str | None]:
    """Yield responses that state a ground truth, in a form or in the usual ones; one of them should get full marks."""
    if reference := reference_response_of(source, default):
        response = reference(truth)
        opening = state_answer("\n", form).partition("\n")[0].rstrip() if form else ""
        if response is None or opening in response:
            yield response
            return
        elsewhere = (read_answer(response, other) for other in ANSWER_FORMS)
        answers = [next((answer for answer in elsewhere if answer is not None), response)]
    else:
        answers = _answers(truth, partial(alternatives_of, source, default=default))
    for answer, each in product(answers, [form] if form else USUAL_FORMS):
        yield from (thought + state_answer(answer, each) for thought in ("<think></think>", ""))


def answers_of(row: RawRow, default: str | None = None) -> list[str]:
    """Return the answers that a row's ground truth accepts; [] if they cannot be read."""
    with suppress(
        Exception
    ):  # a reference response may be anybody's code; the check of the reward reports what it raises
        source, truth = row.get("data_source"), ground_truth_of(row)
        reference = reference_response_of(source, default)
        if reference is None:
            return _answers(truth, partial(alternatives_of, source, default=default))
        response = reference(truth)
        read = [read_answer(response, form) for form in ANSWER_FORMS] if response else []
        return [answer for answer in read if answer is not None] or [*filter(None, [response])]
    return []


def _answers(truth: Any, alternatives: Callable[[str], list[str]]) -> list[str]:
    """Return the strings that a ground truth accepts: itself, its alternatives, or those under a mapping's usual key."""
    if isinstance(truth, Mapping):
        for key in ("solution_text_format", "target"):
            if truth.get(key):
                return _answers(truth[key], alternatives)
        truth = list(truth.values())
    if isinstance(truth, list):
        return [answer for value in truth for answer in _answers(value, alternatives)]
    if truth is None:
        return []
    if isinstance(truth, str) and (items := listed(truth)):
        return [*(answer for item in items for answer in _answers(item, alternatives)), truth]
    named = alternatives(str(truth))  # "0.09 OR \\frac{9}{100}" in mathematics
    return [str(truth), *(named if len(named) > 1 else [])]


def accepts(row: RawRow, truth: Any, stated: Any, default: str | None) -> bool:
    """Return whether a response that states one ground truth is right for another; False without a reward, or if it raises."""
    source = row.get("data_source")
    if not has_reward(source, default):
        return False
    given = reward_input(extra_info_of(row), row.get("prompt"))
    try:
        responses = _gold_responses(source, stated, asked_form(row.get("prompt")), default)
        return any(
            score_response(str(source), response, truth, given, default_reward=default)["acc"] == 1.0
            for response in responses
            if response is not None
        )
    except Exception:  # a reward may be anybody's code; the check of the reward reports what it raises
        return False
