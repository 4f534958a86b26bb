"""Which rare tokens decide: on chains, where it is known."""

import asyncio

import pytest

from studies.chains.chains import FIRST, LAST, Chain
from studies.chains.diagnosis import ChainWriter
from verl_trgrpo.evaluation.rare_tokens import (
    CONTINUATIONS,
    ProbedToken,
    Written,
    cost_text,
    diagnosis_text,
    probe_rare_tokens,
)


def test_a_token_decides_where_the_rewards_differ_by_more_than_chance():
    assert ProbedToken(0.1, [1.0] * 8, [0.0] * 8).decides and ProbedToken(0.1, [0.0] * 8, [1.0] * 8).change == -1
    assert not ProbedToken(0.1, [1.0] * 8, [1.0] * 8).decides
    assert not ProbedToken(0.1, [1, 0, 1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1, 1, 1]).decides


def test_rare_tokens_at_decisions_are_told_from_rare_wording():
    """Right decisions of 0.1 are rare tokens, and so are two words of each of ten fillers."""
    writer = ChainWriter(Chain(10, 0.1), seed=3)
    answers = {prompt: [writer.write(prompt) for _ in range(8)] for prompt in range(0, 216, 9)}
    found = {}
    for name, decisions in (("decisions", True), ("wording", False)):
        kept = {
            prompt: [
                Written(
                    one.tokens,
                    [p if (place in (FIRST, LAST)) == decisions else 1.0 for place, p in enumerate(one.probs)],
                    one.others,
                    "",
                )
                for one in own
            ]
            for prompt, own in answers.items()
        }
        probes, _ = asyncio.run(probe_rare_tokens(kept, writer.proceed, writer.score, 80, seed=1))
        assert len(probes) == 80 and all(len(probe.own) == len(probe.other) == CONTINUATIONS for probe in probes)
        found[name] = sum(probe.decides for probe in probes)
    assert found["wording"] <= 8 < 12 <= found["decisions"]


@pytest.mark.parametrize(
    "probes", [[], [ProbedToken(0.1, [1.0] * 8, [0.0] * 8)] * 3 + [ProbedToken(0.2, [0.5] * 8, [0.5] * 8)]]
)
def test_the_sentence_counts_both_kinds(probes):
    text = diagnosis_text(probes, 0.1)
    if probes:
        assert "Of 4 rare tokens" in text and "3 decide: 3 raise" in text and "1 are wording" in text
    else:
        assert "none" in text


def test_the_cost_is_that_of_the_continuations():
    assert "1,600 continuations" in cost_text(16, 100)
