"""NTHR: its options and the engines that it refuses, and prediction errors without a copy of the logits."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.conftest import composed
from verl_trgrpo.checks.check import check
from verl_trgrpo.common.findings import InvalidInputError, Level
from verl_trgrpo.experimental.nthr.influence import prediction_errors
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


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor made within it, views of the logits aside."""

    def __init__(self, logits):
        super().__init__()
        self.given, self.elements = logits.untyped_storage().data_ptr(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        made = [x for x in tree_leaves(found) if isinstance(x, torch.Tensor)]
        made = [x.numel() for x in made if x.untyped_storage().data_ptr() != self.given]
        self.elements = max([self.elements, *made])
        return found


def test_errors_are_one_hot_minus_p_without_a_copy_of_the_logits():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5000, 300, generator=generator).bfloat16()
    places = torch.arange(100, 4900)
    vocabulary = torch.arange(0, 300, 7)
    tokens = vocabulary[torch.randint(len(vocabulary), (len(places),), generator=generator)]
    with Largest(logits) as largest:
        found = prediction_errors(logits, places, tokens, vocabulary, 0.7)
    expected = torch.nn.functional.one_hot(tokens, 300) - (logits[places].double() / 0.7).softmax(-1)
    torch.testing.assert_close(found.double(), expected[:, vocabulary], rtol=0, atol=1e-5)
    assert largest.elements < logits.numel() / 3
