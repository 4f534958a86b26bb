"""Options of NTHR, and the engines that it refuses."""

import pytest

from tests.conftest import composed
from verl_trgrpo.checks.check import check
from verl_trgrpo.common.findings import InvalidInputError, Level
from verl_trgrpo.experimental.nthr.options import NTHROptions

ACTOR = "actor_rollout_ref.actor"
HIDING = [f"{ACTOR}.use_fused_kernels=true", f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size=2"]


def test_all_wrong_values_are_named():
    wrong = {"beta": -1.0, "correct_from": float("nan"), "groups_at_a_time": 1.5, "own_influence": "no"}
    with pytest.raises(InvalidInputError) as raised:
        NTHROptions(**wrong)
    assert [message.partition("=")[0] for message in raised.value.messages] == list(wrong)


def test_what_hides_hidden_states_or_logits_is_refused(sound_run):
    def findings(*overrides):
        return [each for each in check(composed([*sound_run, *overrides])).findings if each.where == ACTOR]

    found = findings("algorithm=nthr", *HIDING)
    assert [each.level for each in found] == [Level.ERROR, Level.ERROR]
    for setting, finding in zip(HIDING, found, strict=True):
        assert setting.rpartition(".")[2] in finding.message
    assert findings("algorithm=nthr") == findings("algorithm=tr_grpo", *HIDING) == []
