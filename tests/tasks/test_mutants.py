"""Rewards pay what is right by construction, and nothing that is wrong by construction, for ground truths drawn at random."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripts import ROOT, load_scripts
from verl_trgrpo.tasks import compute_score

[MUTANTS] = load_scripts(ROOT / "benchmarks", "mutants")


@pytest.mark.parametrize("reward", MUTANTS.REWARDS)
@settings(max_examples=20, deadline=None)
@given(draw=st.randoms(use_true_random=False))
def test_a_mutant_is_paid_exactly_if_it_is_right(reward, draw):
    gold = MUTANTS.generated(reward, draw)
    source, truth = MUTANTS.scored_as(reward, gold)
    for right, rule, response in MUTANTS.mutants(reward, gold):
        assert compute_score(source, response, truth)["acc"] == float(right), (rule, response)


@pytest.mark.parametrize("reward", MUTANTS.REWARDS)
def test_a_reward_that_looks_for_the_answer_in_the_response_is_found_out(reward):
    """Each kind has wrong mutants that hold the right answer."""
    gold = MUTANTS.generated(reward, random.Random(2))
    made = [*MUTANTS.mutants(reward, gold)]
    [stated] = [response for right, rule, response in made if right and rule in ("as it is", "lines")]
    core = stated.removeprefix("<think></think><answer>").removesuffix("</answer>").removeprefix(r"So it is $\boxed{")
    core = core.removesuffix("}$.").splitlines()[0]
    assert {right for right, _, response in made if core in response} == {True, False}
