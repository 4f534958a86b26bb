"""Which parts of a response the model wrote.

The agent loop knows for certain what the model wrote and says it in ``extra_info["model_text"]``: a text per turn, in
order. A single text is one turn. The response itself is then not read.

Without it the observations are found by their tags in the decoded response: ``<information>`` of the search-tag loop,
``<tool_response>`` of veRL's tool agent with Hermes-style chat templates, and the turn markers of ChatML where decoding
keeps them. The tags of a retrieved passage look the same, so the rule is the cautious one: a stretch of text between two
tags is the model's only if no opening tag stands right before it and no closing tag right after it. So nested, repeated
and stray tags make a text less the model's, never more; after the last closing tag the text is the model's; and where the
response ends inside an observation, the last turn is empty.

A passage can still speak for the model where the loop cuts an observation off before its closing tag and the passage
holds a closing tag itself. Other chat templates mark tool answers differently: there `model_text` is needed.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from verl_trgrpo.common.text import shorten

_OPENING = ("<information>", "<tool_response>", "<|im_start|>user", "<|im_start|>tool", "<|im_start|>system")
_CLOSING = ("</information>", "</tool_response>", "<|im_start|>assistant")
_BORDER = re.compile("|".join(re.escape(tag) for tag in (*_OPENING, *_CLOSING)))
_ANSWER_TAG = re.compile(r"</?answer>")


def model_turns(response: str, extra_info: Mapping[str, Any]) -> list[str]:
    """Return the texts that the model wrote, a text per turn; the last one may be empty. Never an empty list.

    Raises ValueError where `model_text` is neither a text nor a list of texts.
    """
    given = extra_info.get("model_text")
    if given is None:
        return _split(response)
    turns = given.tolist() if hasattr(given, "tolist") else [given] if isinstance(given, str) else given
    if not isinstance(turns, list | tuple) or not all(isinstance(turn, str) for turn in turns):
        raise ValueError(
            f"extra_info['model_text'] is {shorten(given)}; the agent loop must give a text, or a list with the text of "
            "each of the model's turns"
        )
    return [*turns] or [""]


def last_answer(turn: str) -> str | None:
    """Return the content of the last complete answer block, or None where there is none.

    A block begins at the last ``<answer>`` before its ``</answer>``, so that a tag that is only mentioned earlier does
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


def _split(response: str) -> list[str]:
    turns = []
    own, start = True, 0
    for tag in _BORDER.finditer(response):
        opening = tag.group() in _OPENING
        if own and opening:
            turns.append(response[start : tag.start()])
        own, start = not opening, tag.end()
    return [*turns, response[start:] if own else ""]
