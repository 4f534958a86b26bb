"""Score answers to any task of reasoning-gym with its own verifier.

A response answers inside `<answer>` and `</answer>`; the last such pair after the reasoning counts. `score` is the value that
the task's `score_answer` returns, from 0 to 1 and partial for some tasks; `acc` is 1 for full marks.

Some verifiers evaluate the answer as Python or sympy code. They run in a process without rights (see `judge.processes`), which
is replaced when an answer ends it, and those that evaluate get only answers in the characters and names of the task's language.
An answer that is refused, makes the verifier raise or ends its process scores 0; the last counts as `timed_out`.

One rule for all tasks says what an answer may hold beside the answer (`_holds_more`): what the right answer of the row does not
hold has to matter to the verifier. Verifiers for which no rule helps are refused (`REFUSED_TASKS`).
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from verl_trgrpo.common.foreign import NotJSONError, parse_json
from verl_trgrpo.common.text import did_you_mean, first_line, shorten
from verl_trgrpo.data.rows import THINKING_OPENED, contains
from verl_trgrpo.judge.answer_form import after_reasoning, last_tagged
from verl_trgrpo.judge.equality import equal_answers
from verl_trgrpo.judge.golds import GroundTruthError, gold_text
from verl_trgrpo.judge.processes import Judges
from verl_trgrpo.tasks.task import Score

VERIFIER_SECONDS = 5.0
"""Processor time for one answer."""
_MAX_ANSWER_CHARS = 20_000

# Tasks whose verifiers call `eval`, for lists, or sympy's `parse_expr`, for numbers with + - * / and for formulas; others only
# compare strings and numbers.
LIST_TASKS = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
ARITHMETIC_TASKS = frozenset({"countdown", "puzzle24"})
EXPRESSION_TASKS = frozenset({"intermediate_integration", "polynomial_multiplication", "simple_integration"})
# Tasks whose verifiers evaluate the entry of the row, which may come from a stranger's file.
EVALUATED_ENTRIES = EXPRESSION_TASKS | {"number_sorting", "bitwise_arithmetic", "propositional_logic", "codeio"}
# Tasks whose verifiers take any text that has the right number in it; the reader of mathematical answers decides in their place.
NUMBER_TASKS = frozenset({"gsm_symbolic"})
# Tasks whose answers are carried out move by move: a needless move of a known kind leaves the answer the same.
MOVE_TASKS = frozenset({"jugs", "knight_swap", "rubiks_cube", "rush_hour", "sokoban", "tower_of_hanoi"})
# Tasks that are not built, scored or accepted in a file, with the reason.
REFUSED_TASKS = {
    "coin_flip": "its verifier takes the beginning of the right number for the whole, such as 0 for 0.125",
    "composite": "its rows hide the task whose verifier decides; take the tasks one by one",
    "game_of_life_halting": "its verifier takes any text for True",
    "propositional_logic": "its verifier takes a premise for the conclusion",
    "puzzle24": "its verifier takes any arithmetic that makes 24, whatever the puzzle",
}

# Lists of numbers and plain strings, and words in capitals (letters to insert into, queens): a name in small letters would be a
# variable of the verifier, such as the right answer.
_LIST = re.compile(r"""(?:'[\w\s.+-]*'|"[\w\s.+-]*"|(?:[A-Z]+|_|[0-9]+)(?![\w'"])|[\s,\[\].+-])*""", re.ASCII)
# Without powers, whole quotients and decimals, which would hide numbers of the puzzle from its verifier.
_ARITHMETIC = re.compile(r"(?!.*(?:\*\s*\*|/\s*/))[0-9\s+*/()-]*", re.DOTALL)
_EXPRESSION = re.compile(
    r"(?!.*[A-Za-z)]\s*\.)(?:(?:sin|cos|tan|sec|csc|cot|sinh|cosh|tanh|asin|acos|atan|exp|log|ln|sqrt|pi|Abs|[A-Za-z])(?![A-Za-z])"
    r"|[0-9\s+*/().,^-])*",
    re.DOTALL,
)

verifier_judge = Judges(f"{__name__}:verify")
"""This process's judges of reasoning-gym's answers."""

# A word, a number, or a symbol other than marks around an answer or between its parts, and units.
_PIECE = re.compile(
    r"(?<!\S)[-–—>]+(?!\S)|[-=]>|→|([^\W\d_]+|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|[^\w\s.,:;'\"()\[\]{}*$€£%°+`\\])"
)
_ENTRY = re.compile(r"([^,;\n()\[\]{}]+)")  # of a list, a mapping or a text

# What a verifier may take for any number because it compares with none.
_NOT_FINITE = re.compile(r"(?<![a-z])(?:nan|inf(?:inity)?)j?(?![a-z])", re.IGNORECASE)


def score_reasoning_gym(response: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None) -> Score:
    """Score one response with the verifier of its row's task.

    Args:
        response: the decoded response without the prompt.
        ground_truth: JSON with the `task`, its `config` and the `entry` that its `score_answer` takes.
        extra_info: says whether the prompt opened the reasoning (`reward_input`).

    Raises:
        GroundTruthError: see `read_entry`; also if reasoning-gym does not have the task, refuses its configuration, or
            its verifier raises for the entry's own answer, too.
    """
    truth = read_entry(ground_truth)
    text = after_reasoning(response, bool((extra_info or {}).get(THINKING_OPENED)))
    answer = last_tagged(text or "")
    if answer is None:
        return Score(0.0, acc=0.0, format_ok=0.0)
    return _score_answer(truth, ground_truth, answer.strip())


def read_entry(ground_truth: Any) -> dict[str, Any]:
    """Return the `task`, `config` and `entry` of a ground truth.

    Raises:
        GroundTruthError: it is not JSON with these, or the entry has no `answer`.
    """
    truth: Any = None
    with contextlib.suppress(TypeError, NotJSONError):
        truth = parse_json(ground_truth)
    kinds = {"task": str, "config": dict, "entry": dict}
    whole = isinstance(truth, dict) and all(isinstance(truth.get(name), kind) for name, kind in kinds.items())
    if not whole or "answer" not in truth["entry"]:
        raise GroundTruthError(
            f"the ground truth {shorten(ground_truth)} is not JSON with task (a string), config and entry (objects), the "
            "entry with its answer; build the file again"
        )
    if truth["task"] in REFUSED_TASKS:
        raise GroundTruthError(refusal(truth["task"], truth["config"]))
    return truth


def entry_mismatch(prompt: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> str:
    """Return why a ground truth cannot be that of a prompt, or "": the question of its entry is not in the prompt.

    Raises:
        GroundTruthError: see `read_entry`.
    """
    question = read_entry(ground_truth)["entry"].get("question")
    if not isinstance(question, str) or contains(prompt, question):
        return ""
    return f"the question of the ground truth's entry, {shorten(question)}, is not in the prompt"


def _score_answer(truth: Mapping[str, Any], ground_truth: str, answer: str) -> Score:
    task, entry = truth["task"], truth["entry"]
    if task in NUMBER_TASKS:
        gold = gold_text(entry["answer"])

        def is_right(text: str) -> bool:
            return equal_answers([gold], text, lambda *_: False)

        right = is_right(answer) and not _holds_more(answer, entry, task, is_right)
        return Score(float(right), acc=float(right))
    if not is_in_language(task, answer) or _is_not_finite(answer, entry):
        return Score(0.0, acc=0.0)
    try:
        value, _ = verifier_judge.ask(ground_truth, answer, limit=VERIFIER_SECONDS, renew=task in EVALUATED_ENTRIES)
    except TimeoutError:
        return Score(0.0, acc=0.0, timed_out=1.0)
    if value is None:  # the verifier raised: because of the answer, unless the entry's own answer makes it raise, too
        _check_verifiable(ground_truth)
    value = min(max(float(value or 0.0), 0.0), 1.0)
    return Score(value, acc=float(value >= 1.0), f1=value)


@lru_cache(maxsize=4096)
def _check_verifiable(ground_truth: str) -> None:
    """Raise a GroundTruthError if the verifier cannot work with a ground truth, whatever the answer is."""
    truth = parse_json(ground_truth)
    task, right = truth["task"], truth["entry"]["answer"]
    if refused := refusal(task, truth["config"]):
        raise GroundTruthError(refused)
    with contextlib.suppress(TimeoutError):
        renew = task in EVALUATED_ENTRIES
        if (
            right is not None
            and verifier_judge.ask(ground_truth, str(right), limit=VERIFIER_SECONDS, renew=renew)[0] is None
        ):
            raise GroundTruthError(f"the verifier of task {task} raises for the entry's own answer {shorten(right)}")


def refusal(task: str, config: Mapping[str, Any]) -> str:
    """Return why reasoning-gym has no such task, or the task no such configuration; empty if it has."""
    from reasoning_gym.factory import DATASETS  # slow import

    if task in REFUSED_TASKS:
        return f"task={task}: {REFUSED_TASKS[task]}; choose another task"
    if task not in DATASETS:
        return f"task={task}: reasoning-gym does not have it; {did_you_mean(task, DATASETS, 'its README lists them')}"
    try:
        dataset_of(task, json.dumps(config))
    except Exception as error:  # each task checks its own configuration, by assertions among others
        return f"config={dict(config)}: task {task} of reasoning-gym refuses it ({first_line(error)})"
    return ""


def is_in_language(task: str, answer: str) -> bool:
    """Return whether the verifier of a task may read an answer: always, unless it evaluates answers."""
    if len(answer) > _MAX_ANSWER_CHARS:
        return False
    if task in LIST_TASKS:
        return _LIST.fullmatch(answer) is not None
    if task in ARITHMETIC_TASKS:
        return _ARITHMETIC.fullmatch(answer) is not None
    return task not in EXPRESSION_TASKS or _EXPRESSION.fullmatch(answer) is not None


def _is_not_finite(answer: str, entry: Mapping[str, Any]) -> bool:
    """Return whether an answer holds a value that is not finite, where the right answer does not."""
    known = _stated(entry) or str(entry.get("question", ""))
    return len(_NOT_FINITE.findall(answer)) > len(_NOT_FINITE.findall(known))


def _stated(entry: Mapping[str, Any]) -> str:
    return "" if entry["answer"] is None else str(entry["answer"])


def _holds_more(answer: str, entry: Mapping[str, Any], task: str, is_right: Callable[[str], bool]) -> bool:
    """Return whether a part of an answer that is right does not matter to its verifier.

    Parts are words, numbers, symbols and entries of lists that the right answer does not hold as often; of words in other letters
    also these. The answer stays right without one of them where it denies the answer or states another beside it ("5 is false",
    "~5", "5 7").

    Args:
        answer: gets full marks.
        entry: of the row. Where it states no answer, its question has the known parts, as often as one likes.
        task: of the row.
        is_right: whether a text gets full marks.
    """
    for start, end in _parts_beside(answer, entry, task):
        before, behind = answer[:start], answer[end:]
        # In a list a comma goes with its entry.
        shorter = {before + behind, before.rstrip(" ,;\n") + behind, before + behind.lstrip(" ,;\n")}
        if any(map(is_right, shorter)):
            return True
    return False


def _parts_beside(answer: str, entry: Mapping[str, Any], task: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each part of an answer for `_holds_more`."""
    known = _stated(entry) or str(entry.get("question", ""))
    once = _stated(entry) and task not in MOVE_TASKS
    letters = set(known.casefold())
    for pattern in (_PIECE, _ENTRY):
        parts = [match for match in pattern.finditer(answer) if match[1]]
        if pattern is _ENTRY:
            parts = [match for match in parts if _has_value(match[1])]
        if task in NUMBER_TASKS:  # the reader knows units and other words
            parts = [match for match in parts if not _has_value(match[1])]
        there = Counter(_key(match[1]) for match in pattern.finditer(known) if match[1])
        here = Counter(_key(match[1]) for match in parts)
        more = {*(here - there)} if once else here.keys() - there.keys()
        for match in parts:
            if _key(match[1]) in more:
                yield match.span(1)
                if pattern is _PIECE and match[1].isalpha():
                    yield from ((i, i + 1) for i in range(*match.span(1)) if answer[i].casefold() not in letters)


def _has_value(text: str) -> bool:
    return any(map(str.isalnum, text))


def _key(part: str) -> str:
    with contextlib.suppress(ArithmeticError):
        return str(Decimal(part.replace(",", "")).normalize())  # 5.0 and 5
    return " ".join(part.casefold().split())


def verify(ground_truth: str, answer: str) -> float:
    """Return what the task's verifier gives for an answer, 0 if that holds more than an answer; runs in the judge's worker."""
    truth = parse_json(ground_truth)
    task, entry = truth["task"], truth["entry"]
    dataset = dataset_of(task, json.dumps(truth["config"]))

    def is_right(text: str) -> bool:
        with contextlib.suppress(Exception):
            return is_in_language(task, text) and dataset.score_answer(text, entry) == 1.0
        return False

    value = float(dataset.score_answer(answer, entry))
    if value < 1.0 or task in ARITHMETIC_TASKS | EXPRESSION_TASKS:  # which are read as a whole
        return value
    # Above 1 rounding has carried a sum of shares, not the answer as a whole.
    return 0.0 if value > 1.0 or _holds_more(answer, entry, task, is_right) else value


def warm_up() -> None:
    """Import the library before the judge forks."""
    import reasoning_gym  # noqa: F401
    import sympy  # noqa: F401


def reference_response(ground_truth: str) -> str | None:
    """Return a response with the right answer, or None if the task states none.

    Raises:
        GroundTruthError: see `read_entry`.
    """
    answer = read_entry(ground_truth)["entry"]["answer"]
    return None if answer is None else f"<answer>{answer}</answer>"


@lru_cache(maxsize=16)
def dataset_of(task: str, config: str) -> Any:
    import reasoning_gym  # slow import

    return reasoning_gym.create_dataset(task, **json.loads(config))
