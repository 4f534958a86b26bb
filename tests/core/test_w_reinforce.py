"""W-REINFORCE: right and wrong, and nothing else."""

import pytest
import torch

from verl_trgrpo.core import OutcomeOptions, outcome_advantages

MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
REWARDS = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.0], [-1.0, 0.0, 0.0]])


def test_right_and_wrong_have_their_own_advantages():
    found = outcome_advantages(REWARDS, MASK, ["a", "a", "b"], OutcomeOptions())
    expected = torch.tensor([[0.1, 0.1, 0.0], [-1.0, 0.0, 0.0], [-1.0, -1.0, -1.0]])
    assert torch.equal(found, expected)
    found = outcome_advantages(REWARDS, MASK, ["a", "a", "b"], OutcomeOptions(positive=0.0, correct_from=0.5))
    assert torch.equal(found[:, 0], torch.tensor([0.0, 0.0, -1.0]))


def test_options_out_of_range_are_all_named():
    with pytest.raises(ValueError, match=r"(?s)positive=-1.*correct_from='x'"):
        OutcomeOptions(positive=-1, correct_from="x")
