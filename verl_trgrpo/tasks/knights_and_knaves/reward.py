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

An answer is claims and nothing else, in any order and in upper or lower case. A claim is `NAME is a knight` or
`NAME is a knave`, or with `:`, ` - ` or ` = ` instead of `is`, and with `the` or nothing instead of `a`. Claims end with a line
break, a space, `;`, `,`, `and`, `&`, a full stop, `!` or a dash; each may begin with a number, such as `(1)`, `1.`, `1)`,
`[1]`, `1:` or `1 -`, or a list mark, such as `-`, `*`, `+` or `•`. Bold, italic and code marks, a code block around the
whole answer, and the width of gaps are ignored, and characters that look alike (full-width letters and brackets, dashes,
apostrophes, accents in one or two characters) are the same. With one more word, such as "if" or "maybe", it is not an
answer: a reward that parses free English can be exploited.

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
from unicodedata import normalize

from verl_trgrpo.common.text import shorten
from verl_trgrpo.judge.answer_form import END_TOKEN
from verl_trgrpo.judge.golds import GroundTruthError
from verl_trgrpo.tasks.task import Score

RIGHT = Score(3.0, acc=1.0)
WRONG = Score(-0.5, acc=0.0)
UNPARSED = Score(-1.0, acc=0.0)
MALFORMED = Score(-3.0, acc=0.0, format_ok=0.0)

MAX_UNICODE_CHARS = 2000
"""A longer answer with characters outside ASCII is not read: normalizing it can take quadratic time."""

_TRUTH_KEY = "solution_text_format"
_TRUTH_LINE = re.compile(r"\(([0-9]+)\) (\S.*) is a (knight|knave)")
_TAG = re.compile(r"</?(?:think|answer)>")
_END_TOKENS = re.compile(END_TOKEN)
_UNDERSCORES = re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")
_PLAIN_LANGUAGES = ("", "text", "txt", "plain", "plaintext", "markdown", "md", "answer")

_NUMBER = r"[(\[]?[0-9]{1,2}(?:\.?\)|[.:\]])"
_ROLE = "(?:a |the )?(?:knight|knave)"
# A number before a role alone is a name: "1: a knight", but not "1: Knight is a knave".
_ALONE = rf"(?! ?{_ROLE}(?! is {_ROLE}| [-=:] |:))"
_MARKS, _ANY_MARKS = (
    rf"(?:(?:and|&) (?!is {_ROLE}))?(?:[-+] )?(?:(?:{_NUMBER} ?|[0-9]{{1,2}} - ){alone})?" for alone in (_ALONE, "")
)
_END = r"(?: ?(?:\.|!{1,3}))?(?: ?-)?(?:(?: ?[,;])+ ?|\Z|(?<=[.!-]) | (?!\(?0))"
# The last alternative takes all the rest at once, so that the time is linear for any input. What stands between two claims
# becomes a part of a name that no person has. "1: Knight 2 is a knave" is read in both ways: the names decide.
_CLAIMS = [
    re.compile(rf"{marks}(.+?)(?: is | [-=:] |: ?)(?:a |the )?(knight|knave){_END}|.+")
    for marks in (_MARKS, _ANY_MARKS)
]


def _characters() -> dict[int, str]:
    """Return what stands for a character that NFKC leaves alone, or whose meaning as a mark it drops."""
    groups = {
        " ": "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff",  # invisible; within a word they part it
        "": "\ufe0f",
        "-": "\u2010\u2011\u2012\u2013\u2212",
        " - ": "\u2014\u2015\ufe58",
        "- ": "\u2022\u2023\u2043\u25e6\u25aa\u25ab\u25a0\u25a1\u25cf\u25cb\u2219\u00b7",
        "'": "\u2018\u2019\u201b\u02bc",
        ". ": "\u3002\uff0e\uff61",
        ", ": "\u3001\uff64",
        "! ": "\uff01",
        "[": "\u3010",
        "]": "\u3011",
        ")": "\u20e3",  # of keycap digits
    }
    table = {ord(character): text for text, characters in groups.items() for character in characters}
    for first, count in ((0x2460, 20), (0x2776, 10), (0x2780, 10), (0x278A, 10)):  # digits in circles
        table |= {first + k: f"({k + 1})" for k in range(count)}
    return table


_CHARACTERS = _characters()


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
        GroundTruthError: the ground truth is malformed, which is an error in the data.
    """
    truth = read_roles(ground_truth)
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
    prompt), the reasoning, `</think>`, `<answer>`, the answer, `</answer>`, and any tokens with which a
    response ends, such as `<|im_end|>`. Tags are case-sensitive and occur nowhere else, not even in the reasoning.
    Reasoning and answer may be empty. Any other text, such as a header word or an HTML comment, is ordinary text.
    """
    reasoning, _, rest = response.partition("</think>")
    between, _, rest = rest.partition("<answer>")
    answer, closed, tail = rest.partition("</answer>")
    if not closed or between.strip() or (tail and _END_TOKENS.sub("", tail).strip()):
        return None
    reasoning = reasoning.lstrip().removeprefix("<think>")
    return None if _has_tag(reasoning) or _has_tag(answer) else answer


def _has_tag(text: str) -> bool:
    return "<" in text and _TAG.search(text) is not None


def read_claims(answer: str, people: Mapping[str, str]) -> dict[str, str] | None:
    """Return the role of each of `people`, or None unless the answer is one claim or more about each and nothing else.

    Args:
        answer: text of the answer block, without the tags.
        people: by their names as `_spelling` writes them.
    """
    if len(answer) > MAX_UNICODE_CHARS and not answer.isascii():
        return None
    text = _spelling(answer)
    for pattern in _CLAIMS:
        claims = set(pattern.findall(text))
        if len(claims) == len(people) and {name for name, _ in claims} == people.keys():
            return dict(claims)
    return None


def read_roles(ground_truth: Any) -> Mapping[str, str]:
    """Return role by name as `_spelling` writes it, from a ground truth as `score_knights_and_knaves` takes it.

    Raises:
        GroundTruthError: it is malformed.
    """
    text = ground_truth.get(_TRUTH_KEY) if isinstance(ground_truth, Mapping) else ground_truth
    if not isinstance(text, str):
        raise GroundTruthError(
            f"the ground truth is {shorten(ground_truth)}; it must be a string, or a mapping with one under {_TRUTH_KEY!r}"
        )
    return _parse_ground_truth(text)


def puzzle_mismatch(prompt: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> str:
    """Return why a ground truth cannot be that of a puzzle, or "": it has other people, or roles that the statements exclude.

    Args:
        prompt: the text of the puzzle.
        ground_truth: as `score_knights_and_knaves` takes it.
        extra_info: may hold the `statements` of the puzzle (see `logic`).

    Raises:
        GroundTruthError: the ground truth is malformed.
    """
    from verl_trgrpo.tasks.knights_and_knaves.logic import is_true, parse_statements  # loads numpy

    roles, text = read_roles(ground_truth), _spelling(prompt)
    if others := [name for name in roles if name not in text]:
        return f"the ground truth names {', '.join(others)}, who is not in the prompt"
    _, listed, rest = text.rpartition(" inhabitants: ")
    people = {*re.split(",? and |, ", rest.partition(".")[0])} if listed else set(roles)
    if left_out := sorted(people ^ roles.keys()):
        return f"only one of prompt and ground truth has {', '.join(left_out)}"
    try:
        statements = parse_statements(extra_info.get("statements"))
    except ValueError:
        return ""
    knights = [role == "knight" for role in roles.values()]
    if len(statements) != len(knights) or [is_true(each, knights) for each in statements] != knights:
        return "the ground truth does not solve extra_info.statements"
    return ""


def _spelling(text: str) -> str:
    """Return `text` in small letters, without marks of emphasis or code, with `;` for line breaks and one space per gap."""
    text = text.strip()
    text = text.lower() if text.isascii() else normalize("NFKC", text.translate(_CHARACTERS)).casefold().strip()
    if "`" in text:
        text = _without_code_marks(text)
    if "_" in text:
        text = _UNDERSCORES.sub("", text)
    return " ".join(" ; ".join(text.replace("*", "").splitlines()).split())


def _without_code_marks(text: str) -> str:
    """Return `text` without backticks, and without the name of the language if all of it is a block of plain text."""
    if text.startswith("```") and text.endswith("```"):
        language, _, body = text[3:-3].partition("\n")
        text = body if language.strip() in _PLAIN_LANGUAGES else text
    return text.replace("`", "").strip()


@lru_cache(maxsize=4096)
def _parse_ground_truth(text: str) -> Mapping[str, str]:
    """Return role by name. Cached: every sample of a group is scored against the same text."""
    truth: dict[str, str] = {}
    for position, line in enumerate(text.strip().split("\n"), start=1):
        match = _TRUTH_LINE.fullmatch(line.strip())
        name = _spelling(match[2]) if match and match[1] == str(position) else ""
        if not match or not name or name in truth or re.sub(_MARKS, "", name, count=1) != name:
            raise GroundTruthError(
                f"malformed Knights-and-Knaves ground truth: line {position} is {shorten(line)}; it must read "
                f"'({position}) <name> is a knight' or knave, with a name that is new and does not look like a list mark"
            )
        truth[name] = match[3]
    return truth
