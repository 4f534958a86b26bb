"""The work to score a Knights-and-Knaves response is linear in its length."""

import random

import pytest

from tests.pattern_steps import grows, repeated
from tests.tasks.knights_and_knaves.kk_answer_cases import RIGHT_ANSWER, TRUTH
from tests.work import counted
from verl_trgrpo.tasks.knights_and_knaves.reward import score_knights_and_knaves

_LETTERS = random.Random(0).choices("abcdefghij <>/(),.|*'\n", k=300)
# What the search for tags sees, anywhere in a response.
TAGS = {
    "random": "".join(_LETTERS),
    "opening think": "<think>",
    "closing think": "</think>",
    "opening answer": "<answer>",
    "half tags": "</answer",
    "end tokens": "<|im_end|>",
    "spaces": " ",
}
# What the reading of claims sees, in an answer.
CLAIMS = {
    "names": "Zoey, ",
    "newlines": "\n",
    "numbers": "(1) ",
    "is a": "is a ",
    "and": "and ",
    "half claims": " is a knight",
    "claims": "Zoey is a knight. ",
    "claims in one sentence": "Zoey is a knight and ",
    "claim lines": RIGHT_ANSWER + "\n",
    "spaced separators": "Zoey is a knight ; , ; ",
    "dashes": "- ",
    "stars": "*",
    "bangs": "!",
    "bangs after a claim": "Zoey is a knight!!!",
    "dashes after claims": "Zoey is a knight - ",
    "numbered claims": "1) Zoey is a knight ",
    "colons": "Zoey: ",
    "code marks": "`",
    "code blocks": "```\n",
    "underscores": "_a_ ",
    "zero-width spaces": "\u200b",
    "accents": "\u0301\u0327\u0345",
    "full-width numbers": "（１）Zoey is a knight",
}


@pytest.fixture(scope="module")
def work():
    with counted("verl_trgrpo") as work:
        yield work


@pytest.mark.parametrize("piece", CLAIMS.values(), ids=CLAIMS.keys())
def test_reading_claims_is_linear(work, piece):
    assert_linear(work, piece, "answer")


@pytest.mark.parametrize("place", ["everywhere", "reasoning", "answer", "tail"])
@pytest.mark.parametrize("piece", TAGS.values(), ids=TAGS.keys())
def test_looking_for_the_answer_is_linear(work, piece, place):
    assert_linear(work, piece, place)


def assert_linear(work, piece, place):
    frame = {
        "everywhere": "{}",
        "reasoning": f"{{}}</think><answer>{TRUTH}</answer>",
        "answer": "<think>a</think><answer>{}</answer>",
        "tail": f"<think>a</think><answer>{TRUTH}</answer>{{}}",
    }[place]
    assert not grows(lambda size: work.of(score_knights_and_knaves, frame.format(repeated(piece, 5 * size)), TRUTH))
