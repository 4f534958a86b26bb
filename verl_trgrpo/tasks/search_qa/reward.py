"""Rule-based reward for question answering with search: exact match and token F1 of a short answer.

The answer is the last complete ``<answer>`` block of the model's last turn: an answer that was followed by another search
was not final, and one in the reasoning was not an answer. Only what the model wrote is read, never what the search
returned (see `format.model_turns`). The answer is
right if it equals one of the golds after SQuAD's normalization.

| answer | score |
|---|---|
| right | 1 |
| right, but more than 10 answer tags were written | 0.25 |
| wrong, empty or none | 0 |

This is the score of veRL's `search_r1_like_qa_em` (exact match; a quarter for a right answer among more than 10 tags) on
honest responses.

Worked example:

>>> score_search_qa("<think>Easy.</think><answer>the Paris.</answer>", {"target": ["Paris", "City of Paris"]}, {}).score
1.0
>>> score_search_qa("<answer>Paris, France</answer>", {"target": ["Paris"]}, {}).as_dict()["f1"]
0.6666666666666666
>>> score_search_qa("<information><answer>Paris</answer></information>", {"target": ["Paris"]}, {}).score
0.0
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.rows import THINKING_OPENED
from verl_trgrpo.judge.answer_form import after_reasoning, last_tagged
from verl_trgrpo.judge.golds import GroundTruthError, listed
from verl_trgrpo.tasks.search_qa.format import model_turns
from verl_trgrpo.tasks.task import Score

MAX_ANSWER_TAGS = 10
MANY_TAGS_DIVISOR = 4.0

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score_search_qa(
    response: str, ground_truth: Mapping[str, Any] | Sequence[str] | str, extra_info: Mapping[str, Any]
) -> Score:
    """Score one response.

    Args:
        response: the decoded response without the prompt, observations included. Any string; the time is linear in its
            length.
        ground_truth: the golds, each of which is right: {"target": list of strings}, the list itself or one string.
        extra_info: `model_text`, if present, is what the model wrote: a string, or a list with a string per turn.

    Returns:
        `Score` with `score` in [0, 1] (see the table above), `acc` exact match, `f1` the best token F1 with any gold,
        `format_ok` 1 if there is an answer block.

    Raises:
        GroundTruthError: malformed golds, or blank ones only.
        ValueError: malformed `model_text`, an error of the agent loop.
    """
    golds = read_golds(ground_truth)
    turns = model_turns(response, extra_info)
    opened = bool(extra_info.get(THINKING_OPENED)) and len(turns) == 1
    answer = last_tagged(after_reasoning(turns[-1], opened) or "")
    exact, f1 = (False, 0.0) if answer is None else match_answer(answer, golds)
    tags = max(sum(turn.count(tag) for turn in turns) for tag in ("<answer>", "</answer>"))
    return Score(
        float(exact) / (MANY_TAGS_DIVISOR if tags > MAX_ANSWER_TAGS else 1.0),
        acc=float(exact),
        format_ok=float(answer is not None),
        f1=f1,
    )


def read_golds(ground_truth: Any) -> list[str]:
    """Return the golds as a list of one or more strings, not all of them blank.

    Raises:
        GroundTruthError: `ground_truth` is anything else.
    """
    golds = ground_truth["target"] if isinstance(ground_truth, Mapping) and "target" in ground_truth else ground_truth
    if hasattr(golds, "tolist"):  # a numpy array, as some loaders give lists
        golds = golds.tolist()
    if isinstance(golds, str):
        golds = listed(golds) or [golds]
    if (
        not isinstance(golds, list | tuple)
        or not all(isinstance(gold, str) for gold in golds)
        or not any(gold.strip() for gold in golds)
    ):
        raise GroundTruthError(
            f"the ground truth is {shorten(ground_truth)}; it needs one or more strings, not all blank: "
            "{'target': ['...', '...']}. Build the data again, or fix the reward_model column"
        )
    return list(golds)


def match_answer(answer: str, golds: Sequence[str]) -> tuple[bool, float]:
    """Return whether `answer` equals one of the golds, and the best token F1 with any of them, in [0, 1].

    An empty answer matches nothing.
    """
    key = comparison_key(answer)
    keys = {comparison_key(gold) for gold in golds} - {""}
    if key in keys:
        return True, 1.0
    tokens = Counter(key.split())
    shared = {gold: (tokens & Counter(gold.split())).total() for gold in keys}
    return False, max((2 * count / (tokens.total() + len(gold.split())) for gold, count in shared.items()), default=0.0)


def comparison_key(text: str) -> str:
    """Normalize a string as SQuAD's evaluation does; exact match compares the results.

    Lower case, no ASCII punctuation, no articles, single spaces. Accents, Unicode punctuation and compatibility characters
    stay, for comparability with published figures. If nothing is left, as of "The" or "+", the result is the string in
    lower case with single spaces, so such a gold can be answered and an empty answer does not match it. The two kinds never
    collide: a normalized string contains no punctuation or lone article.
    """
    text = text.lower()
    return " ".join(_ARTICLES.sub(" ", text.translate(_NO_PUNCTUATION)).split()) or " ".join(text.split())
