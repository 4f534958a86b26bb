"""Which parts of a response the model wrote: its turns, without what the search returned.

The agent loop knows that for certain and says it in ``extra_info["model_text"]``: a text per turn, in order. A single
text is one turn. The response itself is then not read.

Without it the observations are found by their tags in the decoded response: ``<information>`` of the search-tag loop,
``<tool_response>`` of veRL's tool agent with Hermes-style chat templates, and the turn markers of ChatML where decoding
keeps them. The tags of a retrieved passage look the same, so the rule is the cautious one: a stretch of text between two
tags is the model's only if no opening tag stands right before it and no closing tag right after it. It follows that

- after the last closing tag the text is the model's, whatever the passages contain;
- nested, repeated and stray tags make a text less the model's, never more;
- where the response ends inside an observation, the last turn is empty.

A passage can still speak for the model where the loop cuts an observation off before its closing tag and the passage
holds a closing tag itself. Other chat templates mark tool answers differently: there `model_text` is needed.
"""

import re
from collections.abc import Mapping
from typing import Any

from verl_trgrpo.common.problems import shorten

MODEL_TEXT = "model_text"

_OPENING = ("<information>", "<tool_response>", "<|im_start|>user", "<|im_start|>tool", "<|im_start|>system")
_CLOSING = ("</information>", "</tool_response>", "<|im_start|>assistant")
_TAG = re.compile("|".join(re.escape(tag) for tag in (*_OPENING, *_CLOSING)))
_END_TOKENS = ("<|im_end|>", "<|endoftext|>", "</s>")


def model_turns(response: str, extra_info: Mapping[str, Any]) -> list[str]:
    """Return the texts that the model wrote, a text per turn; the last one may be empty. Never an empty list.

    Raises:
        ValueError: `model_text` is neither a text nor a list of texts.
    """
    given = extra_info.get(MODEL_TEXT)
    if given is None:
        return _split(response)
    if isinstance(given, str):
        return [_without_markers(given)]
    turns = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(turns, list | tuple) or not all(isinstance(turn, str) for turn in turns):
        raise ValueError(
            f"extra_info[{MODEL_TEXT!r}] is {shorten(given)}; the agent loop must give a text, or a list with the text of "
            "each of the model's turns"
        )
    return [_without_markers(turn) for turn in turns] or [""]


def _split(response: str) -> list[str]:
    turns = []
    own, start = True, 0
    for tag in _TAG.finditer(response):
        opening = tag.group() in _OPENING
        if own and opening:
            turns.append(_without_markers(response[start : tag.start()]))
        own, start = not opening, tag.end()
    turns.append(_without_markers(response[start:]) if own else "")
    # Several observations in a row leave blank stretches between them; only the last turn may be empty.
    return [turn for turn in turns[:-1] if turn] + turns[-1:]


def _without_markers(turn: str) -> str:
    """Remove what a chat template writes at the borders of a turn: end tokens, and the role names that follow them."""
    for token in _END_TOKENS:
        turn = turn.replace(token, "")
    return turn.strip().removeprefix("assistant\n").removesuffix("\nuser").strip()
