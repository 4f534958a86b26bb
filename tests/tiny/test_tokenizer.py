import random

import pytest
from transformers import AutoTokenizer

from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles
from verl_trgrpo.tiny.puzzles import CHECKPOINT, PERSON_TOKENS, demonstration, prompt_text
from verl_trgrpo.tiny.tokenizer import SPECIAL_TOKENS, TAG_TOKENS, train_tokenizer

SMALLEST_VOCABULARY = 256 + len(SPECIAL_TOKENS) + len(TAG_TOKENS)

MESSAGES = [{"role": "user", "content": "(1) Zoey: (2) is a knave"}]

TEXTS = {
    "puzzle": "(1) Zoey: (2) is a knave or (1) is a knight\n(2) Oliver: (1) is not a knave",
    "response": "<think>K N (1) T F T ok</think><answer>(1) Zoey is a knight\n(2) Oliver is a knave</answer>",
    "white space": " \t two  spaces\r\n\n end ",
    "accents": "naïve façade ÅÄÖ",
    "other scripts": "日本語 Ελληνικά עברית",
    "emoji": "🧩🤥 👩‍🔬",
    "control characters": "\x00\x01\x7f",
    "numbers": "(9) (10) 1234 (1)(2)",
    "part of a phrase": "this is about a knight, is a k, is an, is not an",
    "empty": "",
}


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(CHECKPOINT)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A tokenizer without merges, saved and read as a tokenizer of its own."""
    directory = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(["K N"], SMALLEST_VOCABULARY, 64).save_pretrained(directory)
    return AutoTokenizer.from_pretrained(directory)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("which", ["tokenizer", "small"])
def test_text_makes_the_round_trip(which, text, request):
    tokenizer = request.getfixturevalue(which)
    for skip in (False, True):
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=skip) == text


def test_every_byte_has_a_token(small):
    # The bytes of ASCII; those of other characters are in the texts above and in the size of the vocabulary.
    text = "".join(map(chr, range(0x80)))
    assert small.decode(small.encode(text)) == text
    assert len(small) == SMALLEST_VOCABULARY


@pytest.mark.parametrize(
    "text", ["\n", *TAG_TOKENS, *PERSON_TOKENS, " is a", " is not a", " knight", " knave", "guess"]
)
def test_these_are_one_token(tokenizer, text):
    assert len(tokenizer.encode(text)) == 1


def test_the_chat_template_is_chatml(tokenizer):
    opened = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert opened == "<|im_start|>user\n(1) Zoey: (2) is a knave<|im_end|>\n<|im_start|>assistant\n"
    conversation = [*MESSAGES, {"role": "assistant", "content": "guess"}]
    closed = tokenizer.apply_chat_template(conversation, tokenize=False)
    assert closed == opened + "guess<|im_end|>\n"


def test_prompt_and_response_do_not_melt_together(tokenizer):
    for puzzle in generate_puzzles(3, 20, seed=1):
        prompt, response = prompt_text(tokenizer, puzzle), demonstration(puzzle, True, random.Random(0))
        assert tokenizer.encode(prompt + response) == tokenizer.encode(prompt) + tokenizer.encode(response)
