"""Whether the model's turns have the layout that the prompt asks for, and where the answer is.

Every turn but the last is a thought and a query, the last a thought and the answer, with nothing but white space
between the blocks and none of these tags inside one::

    <think> ... </think> <search> ... </search>      (an observation follows)
    <think> ... </think> <answer> ... </answer>

A ``<tool_call>`` block of veRL's tool agent may stand for ``<search>``.
"""

import re
from collections.abc import Sequence

_TAG = re.compile(r"</?(?:think|search|tool_call|information|tool_response|answer)>")
_ANSWER_TAG = re.compile(r"</?answer>")

_QUERY_TURNS = (
    ["<think>", "</think>", "<search>", "</search>"],
    ["<think>", "</think>", "<tool_call>", "</tool_call>"],
)
_ANSWER_TURNS = (["<think>", "</think>", "<answer>", "</answer>"],)


def has_layout(turns: Sequence[str]) -> bool:
    """Return whether the turns are laid out as described above."""
    return _is_turn(turns[-1], _ANSWER_TURNS) and all(_is_turn(turn, _QUERY_TURNS) for turn in turns[:-1])


def _is_turn(turn: str, allowed: Sequence[list[str]]) -> bool:
    if _TAG.findall(turn) not in allowed:
        return False
    before, _thought, between, _block, after = _TAG.split(turn)
    return not (before.strip() or between.strip() or after.strip())


def last_answer(turn: str) -> str | None:
    """Return the content of the last complete answer block, or None where there is none.

    A block goes from the last ``<answer>`` before its ``</answer>``, so that a tag which is only mentioned earlier does
    not become part of the answer.
    """
    answer, start = None, None
    for tag in _ANSWER_TAG.finditer(turn):
        if tag.group() == "<answer>":
            start = tag.end()
        elif start is not None:
            answer, start = turn[start : tag.start()], None
    return answer


def count_answer_tags(turns: Sequence[str]) -> int:
    """Return how many opening or how many closing answer tags there are, whichever is more."""
    return max(sum(turn.count(tag) for turn in turns) for tag in ("<answer>", "</answer>"))
