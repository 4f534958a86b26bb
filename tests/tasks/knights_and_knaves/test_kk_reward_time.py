"""The time to score a Knights-and-Knaves response is linear in its length."""

import random
import time

import pytest

from tests.tasks.knights_and_knaves.kk_answer_cases import RIGHT_ANSWER, TRUTH
from verl_trgrpo.tasks.knights_and_knaves.reward import score_knights_and_knaves

MEDIUM, LARGE = 40_000, 400_000  # characters
_LETTERS = random.Random(0).choices("abcdefghij <>/(),.|*'\n", k=5000)
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


def seconds(response: str) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        score_knights_and_knaves(response, TRUTH)
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize("piece", CLAIMS.values(), ids=CLAIMS.keys())
def test_reading_claims_is_linear(piece):
    assert_linear(piece, "answer")


@pytest.mark.parametrize("place", ["everywhere", "reasoning", "answer", "tail"])
@pytest.mark.parametrize("piece", TAGS.values(), ids=TAGS.keys())
def test_looking_for_the_answer_is_linear(piece, place):
    assert_linear(piece, place)


def assert_linear(piece, place):
    frame = {
        "everywhere": "{}",
        "reasoning": f"{{}}</think><answer>{TRUTH}</answer>",
        "answer": "<think>a</think><answer>{}</answer>",
        "tail": f"<think>a</think><answer>{TRUTH}</answer>{{}}",
    }[place]
    medium, large = (seconds(frame.format((piece * (size // len(piece) + 1))[:size])) for size in (MEDIUM, LARGE))
    assert large < 20 * medium + 0.05  # the constant: timer noise where both are tiny
