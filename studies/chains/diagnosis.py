"""Check the diagnosis of `verl-trgrpo preview --rare-tokens` on chains, where it is known which tokens decide.

    OMP_NUM_THREADS=1 python -m studies.chains.diagnosis > studies/chains/records/diagnosis.json

Of the start policies of six chains, 300 rare tokens each of 16 prompts x 8 answers are probed. Prediction, chosen before the
first run: a rule that damps rare tokens ends above GRPO where more than half of them are wording by the diagnosis, else below.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from studies.chains.chains import (
    DIGITS,
    FIRST,
    LAST,
    LENGTH,
    PROMPTS,
    VOCABULARY,
    Chain,
    policy_logits,
    prompt_digits,
    start_policies,
)
from verl_trgrpo.evaluation.rare_tokens import RARE, ProbedToken, Written, probe_rare_tokens
from verl_trgrpo.runs.environment import provenance

TOKENS, PROMPT_COUNT, SAMPLES, SEED = 300, 16, 8, 31000


class ChainWriter:
    """Write and continue chains with one policy, as `preview` does with an engine."""

    def __init__(self, chain: Chain, seed: int) -> None:
        self.random = random.Random(seed)
        policies = start_policies(chain, 1, seed)
        self.probs = policy_logits(policies, torch.arange(PROMPTS)[None]).softmax(-1)[0].tolist()
        self.right = torch.stack(prompt_digits(), -1).tolist()

    def write(self, prompt: int, begun: Sequence[int] = ()) -> Written:
        """Return a chain that begins with tokens."""
        tokens, probs, others = [*begun], [1.0] * len(begun), [*begun]
        while len(tokens) < LENGTH:
            at = len(tokens)
            row = self.probs[prompt][at if at < LAST else LAST + min(tokens[FIRST], DIGITS - 1)]
            [token] = self.random.choices(range(VOCABULARY), row)
            tokens.append(token)
            probs.append(row[token])
            others.append(max((one for one in range(VOCABULARY) if one != token), key=row.__getitem__))
        return Written(tokens, probs, others, "")

    async def proceed(self, prompt: int, begun: Sequence[int], sample: int) -> Written:
        """Continue a chain."""
        return self.write(prompt, begun)

    def score(self, prompt: int, answer: Written) -> float:
        """Return the reward."""
        a, b, c = self.right[prompt]
        return float(answer.tokens[FIRST] == (a + b) % DIGITS and answer.tokens[LAST] == (a + b + c) % DIGITS)


def diagnosed(chain: Chain, tokens: int = TOKENS, seed: int = SEED) -> dict[str, Any]:
    """Return how many rare tokens of a chain decide by the diagnosis, beside the share that stands at a decision."""
    writer = ChainWriter(chain, seed)
    answers = {
        prompt: [writer.write(prompt) for _ in range(SAMPLES)] for prompt in range(0, PROMPTS, PROMPTS // PROMPT_COUNT)
    }
    rare = [place for own in answers.values() for one in own for place, p in enumerate(one.probs) if p < RARE]
    found: tuple[list[ProbedToken], float] = asyncio.run(
        probe_rare_tokens(answers, writer.proceed, writer.score, tokens, seed)
    )
    probes, share = found
    deciding = sum(probe.decides for probe in probes) / max(len(probes), 1)
    return {
        "fillers": chain.fillers,
        "right": chain.right,
        "probes": len(probes),
        "rare": round(share, 4),
        "at_decisions": round(sum(place in (FIRST, LAST) for place in rare) / max(len(rare), 1), 4),
        "decide": round(deciding, 4),
        "damping": 1 if deciding < 0.5 else -1,
    }


def main() -> int:
    chains = [Chain(fillers, right) for fillers in (10, 0) for right in (0.75, 0.5, 0.1)]
    json.dump(
        {"chains": [diagnosed(chain) for chain in chains], **provenance(Path(__file__).parent)}, sys.stdout, indent=1
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
