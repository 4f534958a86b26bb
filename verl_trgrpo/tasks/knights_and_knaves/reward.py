"""Rule-based reward for Knights-and-Knaves (K&K) puzzles.

The response must have the form `<think> reasoning </think><answer> answer </answer>`; then the answer is read and
compared with the ground truth. There is no partial credit. The levels are those of the rewards this data set is
usually trained with, so that scores can be compared:

| response | format | answer | score | acc | format_ok |
|---|---|---|---|---|---|
| every role is right | +1 | +2 | 3 | 1 | 1 |
| every person has a role, but not all are right | +1 | -1.5 | -0.5 | 0 | 1 |
| the answer is anything else than one role for every person | +1 | -2 | -1 | 0 | 1 |
| the form is wrong (the answer is then not read) | -1 | -2 | -3 | 0 | 0 |

`acc` is 1 only if the form is right as well: a correct answer in a malformed response counts as 0.

An answer is claims and nothing else, `NAME is a knight` or `NAME is a knave`, in any order and in upper or lower case.
Claims end with a line break, `;`, `,`, `and`, or a full stop; each may begin with a number, `(1)`, `1.` or `1)`, or a
list mark, `-`, `*` or `•`; asterisks and the width of gaps are ignored. With one more word, such as "if" or "maybe", it is
not an answer: a reward that parses free English can be exploited.

Worked example:

>>> truth = "(1) Zoey is a knight\\n(2) Oliver is a knave"
>>> score_knights_and_knaves("Oliver lies.</think><answer>Zoey is a knight, Oliver is a knave.</answer>", truth).score
3.0
>>> score_knights_and_knaves("</think><answer>Zoey is a knight and Oliver is a knight</answer>", truth).score
-0.5
>>> score_knights_and_knaves("</think><answer>Zoey may be a knight, Oliver is a knave.</answer>", truth).score
-1.0
>>> score_knights_and_knaves("<answer>Zoey is a knight, Oliver is a knave.</answer>", truth).score
-3.0
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from verl_trgrpo.common.text import shorten
from verl_trgrpo.tasks.registry import Score

RIGHT = Score(3.0, acc=1.0)
WRONG = Score(-0.5, acc=0.0)
UNPARSED = Score(-1.0, acc=0.0)
MALFORMED = Score(-3.0, acc=0.0, format_ok=0.0)

_TRUTH_KEY = "solution_text_format"
_TRUTH_LINE = re.compile(r"\(([0-9]+)\) (\S.*) is a (knight|knave)")
_TAG = re.compile(r"</?(?:think|answer)>")
_END_TOKENS = re.compile(r"<\|im_end\|>|<\|endoftext\|>|</s>")

_MARKS = r"(?:and (?!is a ))?(?:[-•] )?(?:\(?[0-9]{1,2}[.)] ?)?"
# The last alternative takes all the rest at once, so that the time is linear for any input.
_CLAIM = re.compile(rf"{_MARKS}(.+?) is a (knight|knave)(?:\.?(?:(?: ?[,;])+ ?|\Z)|\. | (?=and ))|.+")


def score_knights_and_knaves(
    response: str, ground_truth: str | Mapping[str, str], extra_info: Mapping[str, Any] | None = None
) -> Score:
    """Score one response.

    Args:
        response: the decoded response without the prompt. Any string; the time is linear in its length.
        ground_truth: one line `(k) Name is a knight` or `(k) Name is a knave` per person, k = 1, 2, ...; or a mapping
            that holds this text under `solution_text_format`.

    Returns:
        `Score` with `score` 3, -0.5, -1 or -3 (see the table above).

    Raises:
        ValueError: the ground truth is malformed, which is an error in the data.
    """
    text = ground_truth.get(_TRUTH_KEY) if isinstance(ground_truth, Mapping) else ground_truth
    if not isinstance(text, str):
        raise ValueError(f"the ground truth is {shorten(ground_truth)}; expected a string, or one under {_TRUTH_KEY!r}")
    truth = _parse_ground_truth(text)
    answer = extract_answer(response)
    if answer is None:
        return MALFORMED
    roles = read_claims(answer, truth)
    if roles is None:
        return UNPARSED
    return RIGHT if roles == truth else WRONG


def extract_answer(response: str) -> str | None:
    """Return the text between the answer tags, or None if the response does not have the required form.

    The form, with white space allowed between the parts: an optional `<think>` (a chat template may have put it into the
    prompt), the reasoning, `</think>`, `<answer>`, the answer, `</answer>`, and any of the end-of-text tokens
    `<|im_end|>`, `<|endoftext|>`, `</s>`. Tags are case-sensitive and occur nowhere else, not even in the reasoning.
    Reasoning and answer may be empty. Any other text, such as a header word or an HTML comment, is ordinary text.
    """
    reasoning, _, rest = response.partition("</think>")
    between, _, rest = rest.partition("<answer>")
    answer, closed, tail = rest.partition("</answer>")
    if not closed or between.strip() or (tail and _END_TOKENS.sub("", tail).strip()):
        return None
    reasoning = reasoning.lstrip().removeprefix("<think>")
    return None if _TAG.search(reasoning) or _TAG.search(answer) else answer


def read_claims(answer: str, people: Mapping[str, str]) -> dict[str, str] | None:
    """Return the role of each of `people`, or None unless the answer is one claim or more about each and nothing else.

    Args:
        answer: text of the answer block, without the tags.
        people: by their names as `_spelling` writes them.
    """
    roles: dict[str, str] = {}
    for name, role in _CLAIM.findall(_spelling(answer)):
        if roles.setdefault(name, role) != role:
            return None
    return roles if roles.keys() == people.keys() else None


def _spelling(text: str) -> str:
    """Return `text` in small letters, without asterisks, with `;` for line breaks and one space for each gap."""
    return " ".join(text.strip().replace("*", "").replace("\n", " ; ").casefold().split())


@lru_cache(maxsize=4096)
def _parse_ground_truth(text: str) -> Mapping[str, str]:
    """Return role by name as `_spelling` writes it. Cached: every sample of a group is scored against the same text."""
    truth: dict[str, str] = {}
    for position, line in enumerate(text.strip().split("\n"), start=1):
        match = _TRUTH_LINE.fullmatch(line.strip())
        name = _spelling(match[2]) if match and match[1] == str(position) else ""
        if not match or not name or name in truth or re.sub(_MARKS, "", name, count=1) != name:
            raise ValueError(
                f"malformed Knights-and-Knaves ground truth: line {position} is {shorten(line)}; it must read "
                f"'({position}) <name> is a knight' or knave, with a name that is new and does not look like a list mark"
            )
        truth[name] = match[3]
    return truth
