"""Tokenizer and random weights of the tiny models: a Qwen2 causal language model of about a million parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

MAX_LENGTH = 512

# The default 0.02 is made for wide models; with it the copying of names is learned several times slower.
INITIALIZER_RANGE = 0.06

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int, added_tokens: Sequence[str]) -> PreTrainedTokenizerBase:
    """Train a byte-level BPE tokenizer.

    Every byte is in the vocabulary, so any text makes the round trip (up to Unicode normalisation form C). Normalisation and
    the cutting of text into words are Qwen2's, because `AutoTokenizer` restores these for a model of the Qwen2 family whatever
    the tokenizer file says. It makes "\\n" one token, which the chat path of veRL relies on, and has no token that joins a space
    and a digit.

    Args:
        texts: any text; added tokens in it teach nothing.
        vocab_size: number of tokens, added tokens included. The vocabulary stays smaller if the texts hold fewer merges.
        added_tokens: tokens of their own that are not special: ``decode(skip_special_tokens=True)`` keeps them for the reward.

    Returns:
        a tokenizer with eos ``<|im_end|>``, pad ``<|endoftext|>`` and a ChatML chat template. Special tokens have the lowest ids.
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
        vocab_size=vocab_size - len(added_tokens),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # The pieces between added tokens, so that no merge is learned from an added token's letters.
    added = "|".join(map(re.escape, sorted([*SPECIAL_TOKENS, *added_tokens], key=len, reverse=True)))
    tokenizer.train_from_iterator((piece for text in texts for piece in re.split(added, text)), trainer=trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in added_tokens])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        extra_special_tokens=[TURN_START],
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )


def new_model(tokenizer: PreTrainedTokenizerBase) -> Qwen2ForCausalLM:
    """Return a model with random fp32 weights drawn from torch's global generator.

    Four layers of width 128, four heads of dimension 32 (the smallest that vLLM's CPU attention has a kernel for),
    input and output embeddings tied, at most `MAX_LENGTH` positions.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        initializer_range=INITIALIZER_RANGE,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config)
