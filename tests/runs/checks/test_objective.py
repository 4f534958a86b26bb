"""The objective's options: each mistake is a finding of its own."""

import pytest

from verl_trgrpo.runs.checks.objective import objective_findings
from verl_trgrpo.runs.compose import compose

ACTOR = "actor_rollout_ref.actor"
LOSS = f"{ACTOR}.policy_loss"


@pytest.mark.parametrize(
    ("overrides", "where", "parts"),
    [
        ([f"{LOSS}.kl=lit", f"{LOSS}.prob_source=olld"], LOSS, ["kl='lit'", "prob_source='olld'"]),
        ([f"{LOSS}.shaping.name=power"], f"{LOSS}.shaping", ["write shaping=power", "lower=1.0"]),
        ([f"{ACTOR}.clip_ratio_low=2", f"{ACTOR}.clip_ratio_c=0.5"], ACTOR, ["clip_ratio_low=2", "clip_ratio_c=0.5"]),
    ],
)
def test_two_mistakes_are_two_findings(sound_run, overrides, where, parts):
    found, _ = objective_findings(compose(overrides=[*sound_run, *overrides]).config)
    assert [finding.where for finding in found] == [where, where]
    messages = [finding.message for finding in found]
    assert all(sum(part in message for message in messages) == 1 for part in parts), messages
    assert not any("\n" in message or "2 problems" in message for message in messages)
