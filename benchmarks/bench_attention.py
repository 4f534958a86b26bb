"""Attention of the single-file trainer on CPUs against transformers' own.

The model has SmolLM2-135M's shape and random weights. Sampling is eight answers to each of eight prompts, an update a forward
and a backward pass of eight sequences.
"""

from __future__ import annotations

import logging
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from paired import compared, parser, report
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig

from verl_trgrpo.common.attention import GROUPED

SHAPE = LlamaConfig(
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    tie_word_embeddings=True,
)
PROMPT, GROUP = 110, 8


@torch.no_grad()
def sampling(model: Any, bf16: bool, tokens: int) -> None:
    """`tokens` steps behind a cache, in which each prompt was computed once; what is drawn does not matter."""
    ids, cache = torch.zeros(GROUP, PROMPT, dtype=torch.long), DynamicCache()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        model(ids, past_key_values=cache, logits_to_keep=1)
        cache.batch_repeat_interleave(GROUP)
        ids = ids[:, :1].repeat_interleave(GROUP, 0)
        for _ in range(tokens):
            model(ids, past_key_values=cache)


def update(model: Any, bf16: bool, tokens: int) -> None:
    """A forward and a backward pass of whole sequences."""
    ids = torch.zeros(GROUP, PROMPT + tokens, dtype=torch.long)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        logits = model(ids, logits_to_keep=tokens).logits
    logits.logsumexp(-1).sum().backward()


def main() -> None:
    options = parser(__doc__, repeats=3)
    options.add_argument("--tokens", type=int, default=40)
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    models = {
        shown: AutoModelForCausalLM.from_config(deepcopy(SHAPE), attn_implementation=name).eval()
        for shown, name in {"transformers' sdpa": "sdpa", "grouped": GROUPED}.items()
    }
    results = {}
    for what in (sampling, update):
        for bf16 in (False, True):
            calls = {shown: partial(what, model, bf16, arguments.tokens) for shown, model in models.items()}
            case = f"{what.__name__}, {'bfloat16' if bf16 else 'float32'}"
            results[case] = compared(calls, "transformers' sdpa", arguments.repeats, warm_up=1)
    report(f"attention, {arguments.tokens} tokens", results, arguments.out)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    main()
