"""The tiny model: a Qwen2 causal language model of about a million parameters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

MAX_LENGTH = 512

# Larger than the 0.02 made for wide models, which learns the copying of names several times slower.
INITIALIZER_RANGE = 0.06


def new_model(tokenizer: PreTrainedTokenizerBase) -> Qwen2ForCausalLM:
    """Return the model with random fp32 weights drawn from torch's global generator.

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


def load(directory: Path) -> tuple[PreTrainedTokenizerBase, Qwen2ForCausalLM]:
    """Return tokenizer and model of a checkpoint directory, the weights as fp32."""
    import torch
    from transformers import AutoTokenizer, Qwen2ForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(directory)
    return tokenizer, Qwen2ForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
