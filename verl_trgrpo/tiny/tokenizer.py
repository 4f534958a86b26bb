"""Byte-level BPE tokenizer of the tiny models, trained on their own worlds' texts.

Every byte is in the vocabulary, so any text makes the round trip (up to Unicode normalisation form C). Normalisation and
the cutting of text into words are Qwen2's, because `AutoTokenizer` restores these for a model of the Qwen2 family
whatever the tokenizer file says. It makes "\\n" one token, which the chat path of veRL relies on, and has no token that
joins a space and a digit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)

# Added but not special: kept by decode(skip_special_tokens=True), whose text the reward parses.
TAG_TOKENS = ("<think>", "</think>", "<answer>", "</answer>")

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, max_length: int, ordinary_tokens: Sequence[str] = TAG_TOKENS
) -> PreTrainedTokenizerBase:
    """Train the tokenizer on ``texts``.

    Args:
        texts: any text; added tokens in it teach nothing.
        vocab_size: number of tokens, added tokens included. The vocabulary stays smaller when the texts hold fewer merges.
        max_length: longest sequence the model accepts, stored as ``model_max_length``.
        ordinary_tokens: added tokens that decoding keeps.

    Returns:
        a tokenizer with eos ``<|im_end|>``, pad ``<|endoftext|>`` and a ChatML chat template. Special tokens have the
        lowest ids.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(ordinary_tokens),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # The pieces between added tokens, so that no merge is learned from an added token's letters.
    added = "|".join(map(re.escape, sorted([*SPECIAL_TOKENS, *ordinary_tokens], key=len, reverse=True)))
    tokenizer.train_from_iterator((piece for text in texts for piece in re.split(added, text)), trainer=trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in ordinary_tokens])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        extra_special_tokens=[TURN_START],
        chat_template=CHAT_TEMPLATE,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
