"""Rule-based reward for Knights-and-Knaves (K&K) puzzles.

The response must have the form `<think> reasoning </think><answer> answer </answer>`; then the answer is read and
compared with the ground truth. There is no partial credit. The levels are those of the rewards this data set is
usually trained with, so that scores can be compared:

| response | format | answer | score | acc | format_ok |
|---|---|---|---|---|---|
| every role is right | +1 | +2 | 3 | 1 | 1 |
| every person has a definite role, but not all are right | +1 | -1.5 | -0.5 | 0 | 1 |
| the answer does not settle every role beyond doubt | +1 | -2 | -1 | 0 | 1 |
| the form is wrong (the answer is then not read) | -1 | -2 | -3 | 0 | 0 |

`acc` is 1 only if the form is right as well: a correct answer in a malformed response counts as 0.

Worked example:

>>> truth = "(1) Zoey is a knight\\n(2) Oliver is a knave"
>>> score_knights_and_knaves("Oliver lies.</think><answer>Zoey is a knight, Oliver is a knave.</answer>", truth).score
3.0
>>> score_knights_and_knaves("</think><answer>Both are knights.</answer>", truth).score
-0.5
>>> score_knights_and_knaves("</think><answer>Zoey may be a knight, Oliver is a knave.</answer>", truth).score
-1.0
>>> score_knights_and_knaves("<answer>Zoey is a knight, Oliver is a knave.</answer>", truth).score
-3.0
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from verl_trgrpo.common.problems import shorten
from verl_trgrpo.tasks.knights_and_knaves.reward.answer import read_answer
from verl_trgrpo.tasks.knights_and_knaves.reward.text import normalize
from verl_trgrpo.tasks.score import Score

FORMAT_REWARD = 1.0
FORMAT_PENALTY = -1.0
RIGHT_REWARD = 2.0
WRONG_PENALTY = -1.5
UNPARSED_PENALTY = -2.0

_TRUTH_KEY = "solution_text_format"
_TRUTH_LINE = re.compile(r"\(([0-9]+)\) (\S.*) is a (knight|knave)")
_TAG = re.compile(r"</?(?:think|answer)>")
_END_TOKENS = re.compile(r"<\|im_end\|>|<\|endoftext\|>|</s>")


def score_knights_and_knaves(
    response: str, ground_truth: str | Mapping[str, str], extra_info: Mapping[str, Any] | None = None
) -> Score:
    """Score one response.

    Args:
        response: the decoded response without the prompt. Any string; the time is linear in its length.
        ground_truth: one line `(k) Name is a knight` or `(k) Name is a knave` per person, k = 1, 2, ...; or a mapping
            that holds this text under `solution_text_format`.
        extra_info: not used.

    Returns:
        `Score` with `score` 3, -0.5, -1 or -3 (see the table above).

    Raises:
        ValueError: the ground truth is malformed, which is an error in the data.
        TypeError: the response is not a string.
    """
    if not isinstance(response, str):
        raise TypeError(f"the response is {type(response).__name__}, not str; decode the tokens before scoring them")
    truth = _parse_ground_truth(_truth_text(ground_truth))
    answer = extract_answer(response)
    if answer is None:
        return Score(FORMAT_PENALTY + UNPARSED_PENALTY, acc=0.0, format_ok=0.0)
    roles = read_answer(answer, tuple(truth))
    if roles is None:
        return Score(FORMAT_REWARD + UNPARSED_PENALTY, acc=0.0)
    if roles != truth:
        return Score(FORMAT_REWARD + WRONG_PENALTY, acc=0.0)
    return Score(FORMAT_REWARD + RIGHT_REWARD, acc=1.0)


def extract_answer(response: str) -> str | None:
    """The text between the answer tags, or None where the response has not the required form.

    The form, with white space allowed between the parts: an optional `<think>` (a chat template may have put it into the
    prompt), the reasoning, `</think>`, `<answer>`, the answer, `</answer>`, and any of the end-of-text tokens
    `<|im_end|>`, `<|endoftext|>`, `</s>`. Tags are case-sensitive and occur nowhere else, not even in the reasoning.
    Reasoning and answer may be empty. Any other text, such as a header word or an HTML comment, is ordinary text.
    """
    tags = list(islice(_TAG.finditer(response), 5))
    if tags and tags[0][0] == "<think>" and not response[: tags[0].start()].strip():
        del tags[0]
    if [tag[0] for tag in tags] != ["</think>", "<answer>", "</answer>"]:
        return None
    reasoning_end, answer_start, answer_end = tags
    between = response[reasoning_end.end() : answer_start.start()]
    tail = response[answer_end.end() :]
    if between.strip() or (tail and _END_TOKENS.sub("", tail).strip()):
        return None
    return response[answer_start.end() : answer_end.start()]


def _truth_text(ground_truth: str | Mapping[str, str]) -> str:
    text = ground_truth.get(_TRUTH_KEY) if isinstance(ground_truth, Mapping) else ground_truth
    if not isinstance(text, str):
        raise ValueError(
            f"the ground truth is {shorten(ground_truth)}; it must be a text of lines like '(1) Zoey is a knight', or a"
            f" mapping that holds one under {_TRUTH_KEY!r}"
        )
    return text


@lru_cache(maxsize=4096)
def _parse_ground_truth(text: str) -> Mapping[str, str]:
    """Name -> role, in order. Cached because every sample of a group is scored against the same text."""
    truth: dict[str, str] = {}
    spellings: set[str] = set()
    problems = []
    for position, line in enumerate(text.strip().split("\n"), start=1):
        match = _TRUTH_LINE.fullmatch(line.strip())
        if match is None or match[1] != str(position):
            problems.append(
                f"line {position} is {shorten(line)}; it must read '({position}) <name> is a knight' or knave"
            )
            continue
        spelling = normalize(match[2])
        if not spelling or spelling in spellings:
            problems.append(
                f"line {position}: the name {shorten(match[2])} is unreadable or used twice; rename the person"
            )
        spellings.add(spelling or "")
        truth[match[2]] = match[3]
    if problems:
        raise ValueError(f"malformed Knights-and-Knaves ground truth: {'; '.join(problems)}")
    return truth
