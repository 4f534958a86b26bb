"""Problems from rows of DeepScaleR's raw files, of the hub's data sets, and of files that are prepared for veRL."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_trgrpo.data.schema import CHAT_TAGS
from verl_trgrpo.tasks.math.answers import is_number, is_text, number_text, read_answers
from verl_trgrpo.tasks.math.prompts import strip_instruction

PROBLEM_COLUMNS = ("problem", "question")
ANSWER_COLUMNS = ("answer", "final_answer")
LEVEL_COLUMNS = ("level", "difficulty")
SUBJECT_COLUMNS = ("subject", "subfield", "type")

_IMAGE = re.compile(
    r"!\[[^\]]*\]\([^)]*\)"
    r"|\[[^\]]*\]\([^)]*\.(?:png|jpe?g|gif|svg|webp)[^)]*\)"
    r"|\\includegraphics(?:\[[^\]]*\])?\{[^}]*\}"
    r"|\\(?:begin|end)\{(?:center|figure|tabular)\}"
    r"|<image[ _]?\d*>|<img\b[^>]*>"
    r"|https?://\S+\.(?:png|jpe?g|gif|svg|webp)\b\S*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Problem:
    """A problem without instructions, its acceptable answers and, where known, its level and subject.

    The level is the source's own measure (its level or difficulty) and cannot be compared between sets.
    """

    text: str
    answers: list[str]
    level: str | None = None
    subject: str | None = None

    @property
    def key(self) -> str:
        """Return the text with its white space made equal: the same for repetitions of a problem."""
        return " ".join(self.text.split())


def read_problem(row: Mapping[str, Any], instructions: tuple[str, ...] = ()) -> Problem:
    """Return the problem of a row with problem (or question) and answer (or final_answer), or prompt and reward_model.

    Args:
        row: other columns than level and subject are ignored.
        instructions: texts that are no part of the problem where one ends a prompt or is its system message.

    Raises:
        NoAnswerError: its answer is null or blank.
        ValueError: the row is malformed; the message says why.
    """
    problem = _first(row, PROBLEM_COLUMNS)
    if problem is None and row.get("prompt") is not None:
        problem = strip_instruction(_checked(_question(row["prompt"], instructions)), instructions)
        reward_model, extra_info = row.get("reward_model"), row.get("extra_info")
        if not isinstance(reward_model, Mapping) or "ground_truth" not in reward_model:
            raise ValueError("the row has a prompt, but no ground_truth in reward_model")
        answer = reward_model["ground_truth"]
        about = extra_info if isinstance(extra_info, Mapping) else {}
    else:
        if not any(column in row for column in ANSWER_COLUMNS):
            raise ValueError(
                f"the row has no column {' or '.join(ANSWER_COLUMNS)}; found {', '.join(row) or 'nothing'}"
            )
        answer, about = _first(row, ANSWER_COLUMNS), row
    text = _checked(problem).strip()
    if not re.search(r"\w", _IMAGE.sub("", text)):
        raise ValueError(f"the problem is {text[:60]!r}; it has no words beside images")
    return Problem(text, read_answers(answer), _label(about, LEVEL_COLUMNS), _label(about, SUBJECT_COLUMNS))


def _first(row: Mapping[str, Any], columns: tuple[str, ...]) -> Any:
    return next((row[column] for column in columns if row.get(column) is not None), None)


def _checked(problem: Any) -> str:
    if not is_text(problem):
        raise ValueError(f"the problem is {repr(problem)[:60]}; expected a text under {' or '.join(PROBLEM_COLUMNS)}")
    tags = [tag for tag in CHAT_TAGS if tag in problem]
    if tags:
        raise ValueError(f"the problem contains {', '.join(tags)}; the chat template adds its own tags")
    return str(problem)


def _question(prompt: Any, instructions: tuple[str, ...]) -> Any:
    messages = prompt if isinstance(prompt, list) and all(isinstance(item, Mapping) for item in prompt) else []
    system, users = messages[:-1], messages[-1:]
    known = all(m.get("role") == "system" and str(m.get("content")) in instructions for m in system)
    if not known or not users or users[0].get("role") != "user":
        raise ValueError(
            f"the prompt is {repr(prompt)[:60]}; expected one message of the user, before it at most the instruction as a "
            "system message"
        )
    return users[0].get("content")


def _label(row: Mapping[str, Any], columns: tuple[str, ...]) -> str | None:
    value = _first(row, columns)
    if is_number(value):
        return number_text(value)
    return value.strip() if is_text(value) else None
