"""The time to score a Knights-and-Knaves response is bounded and linear in its length.

The bounds in seconds are promises to users: a batch is scored response after response in one process.
"""

import random
import time

import pytest

from tests.tasks.knights_and_knaves.reward.kk_answer_cases import RIGHT_ANSWER, TRUTH
from verl_trgrpo.tasks.knights_and_knaves.reward.scorer import score_knights_and_knaves
from verl_trgrpo.tasks.knights_and_knaves.reward.text import MAX_ANSWER_CHARS

# Characters, each of at least one byte.
SMALL, MEDIUM, LARGE = 20_000, 100_000, 1_000_000
SMALL_BOUND, LARGE_BOUND = 0.05, 1.0
_LETTERS = random.Random(0).choices("abcdefghij <>/(),.|*'\n", k=5000)
PIECES = {
    "random": "".join(_LETTERS),
    "opening think": "<think>",
    "closing think": "</think>",
    "opening answer": "<answer>",
    "closing answer": "</answer>",
    "brackets": "<",
    "half tags": "</answer",
    "end tokens": "<|im_end|>",
    "names": "Zoey, ",
    "names and": "Zoey and Ava, ",
    "spaces": " ",
    "tabs and newlines": "\t\n",
    "newlines": "\n",
    "digits": "1",
    "numbers": "(1) ",
    "is a": "is a ",
    "claims": "Zoey is a knight. ",
    "claims in one sentence": "Zoey is a knight and ",
    "claim lines": RIGHT_ANSWER + "\n",
    "reports": "Oliver says that Zoey is a knight or ",
    "role lists": "knights: Zoey, ",
    "parentheses": "(",
    "dashes": "-",
    "bars": "|",
    "stars": "*",
    "underscores": "_",
    "apostrophes": "'s",
    "dots": ".",
    "accents": "e\u0301",
    "combining marks": "\u0301\u0316",
    "compatibility characters": "\ufdfa",
    "full-width": "Ｚｏｅｙ ",
    "emoji": "😀\u200d",
    "surrogates": "\ud800",
    "neutral": "therefore the answer is ",
    "reports of roles": "Oliver says Zoey is a knave or ",
}


def seconds(response: str) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        score_knights_and_knaves(response, TRUTH)
        times.append(time.process_time() - start)
    return min(times)


def repeated(piece: str, size: int) -> str:
    return (piece * (size // len(piece) + 1))[:size]


@pytest.mark.parametrize("place", ["everywhere", "reasoning", "answer", "tail"])
@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES.keys())
def test_time_is_linear_and_bounded(piece, place):
    frame = {
        "everywhere": "{}",
        "reasoning": f"{{}}</think><answer>{TRUTH}</answer>",
        "answer": "<think>a</think><answer>{}</answer>",
        "tail": f"<think>a</think><answer>{TRUTH}</answer>{{}}",
    }[place]
    small, medium, large = (seconds(frame.format(repeated(piece, size))) for size in (SMALL, MEDIUM, LARGE))
    assert small < SMALL_BOUND
    assert large < LARGE_BOUND
    assert large < 20 * medium + 0.05  # the constant: timer noise where both are tiny


@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES.keys())
def test_answers_just_short_enough_to_be_read_are_bounded_too(piece):
    answer = repeated(piece, MAX_ANSWER_CHARS - 10)
    assert seconds(f"<think>a</think><answer>{answer}</answer>") < SMALL_BOUND
