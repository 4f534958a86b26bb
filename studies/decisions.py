"""Say which tokens of a sampled answer decide its reward, for tasks whose answers end in "Answer: X", and rules that know it.

The counterpart of the oracles of `studies.chains.rules` for a language model: the word behind "Answer:" decides, and all other
tokens are wording.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from studies.chains.rules import RARE

_ANSWER = re.compile(r"Answer:\s*(\w+)")

# (probabilities, decisions) -> True at tokens that get a gradient
RULES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "oracle": lambda probs, decides: decides,
    "without_rare_wording": lambda probs, decides: (probs >= RARE) | decides,
    "without_rare_decisions": lambda probs, decides: (probs >= RARE) | ~decides,
}


def decision_mask(responses: torch.Tensor, mask: torch.Tensor, tokenizer: Any) -> torch.Tensor:
    """Return (B, R), True at the tokens of the word behind the last "Answer:"; an answer without one has none.

    Args:
        responses: (B, R) token ids.
        mask: (B, R) True at sampled tokens.
        tokenizer: that decodes them.
    """
    decides = torch.zeros_like(mask)
    for row, (ids, keep) in enumerate(zip(responses, mask, strict=True)):
        sampled = ids[keep].tolist()
        texts = [tokenizer.decode(sampled[:end]) for end in range(len(sampled) + 1)]
        if found := [*_ANSWER.finditer(texts[-1])]:
            first, last = found[-1].span(1)
            for place in range(len(sampled)):
                decides[row, place] = len(texts[place]) < last and len(texts[place + 1]) > first
    return decides
