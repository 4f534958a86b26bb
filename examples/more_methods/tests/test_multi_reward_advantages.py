"""GDPO against veRL's own function, Constrained GRPO against GRPO and by hand."""

import math
import statistics

import numpy as np
import pytest
import torch
from more_methods.multi_reward.advantages import (
    ConstraintOptions,
    Cost,
    RewardWeights,
    constrained_advantages,
    decoupled_advantages,
    dual_ascent,
    part_values,
)

from verl_trgrpo.core import group_relative_advantages

LABELS = ["a", "b", "a", "b", "a", "b", "c", "c"]
MASK = (torch.arange(4)[None] < torch.tensor([4, 1, 2, 3, 1, 4, 2, 2])[:, None]).float()
RIGHT = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]
FORMAT = [0.25, 0.5, 1.0, 0.5, -2.0, 0.5, 0.0, 3.0]


def column(values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def tokens(values):
    return torch.nn.functional.pad(column(values), (0, 3))


@pytest.mark.parametrize("weights", [None, [2.0, 0.5]])
@pytest.mark.parametrize("normalize", [True, False])
def test_gdpo_gives_what_verl_s_own_function_gives(weights, normalize):
    """veRL's older trainer hands that function the columns that its v1 trainer does not."""
    from verl.trainer.ppo.core_algos import compute_gdpo_outcome_advantage

    config = {"gdpo_reward_keys": ["acc", "form"], "gdpo_reward_weights": weights}
    theirs, _ = compute_gdpo_outcome_advantage(
        torch.zeros_like(MASK),
        MASK,
        np.array(LABELS),
        norm_adv_by_std_in_grpo=normalize,
        config=config,
        non_tensor_batch={"acc": RIGHT, "form": FORMAT},
        batch={"prompts": torch.ones(8, 2), "attention_mask": torch.cat([torch.ones(8, 2), MASK], dim=1).long()},
    )
    rewards = torch.cat([column(RIGHT), column(FORMAT)], dim=1)
    options = RewardWeights(("acc", "form"), weights or ())
    ours = decoupled_advantages(rewards, MASK, LABELS, options.weights, normalize_by_std=normalize)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_gdpo_tells_apart_what_a_sum_of_rewards_makes_equal():
    rewards = torch.cat([column([1.0, 0.0, 0.0, 0.0]), column([0.0, 1.0, 1.0, 0.0])], dim=1)
    mask, labels = torch.ones(4, 1), ["a"] * 4
    summed = group_relative_advantages(rewards.sum(dim=1, keepdim=True), mask, labels)
    assert summed[0] == summed[1]
    apart = decoupled_advantages(rewards, mask, labels, (1.0, 1.0))
    assert apart[0] > apart[1] == apart[2] > apart[3], "the rarer of two rewards says more"


def test_gdpo_leaves_rows_without_tokens_out():
    rewards = torch.cat([column(RIGHT), column(FORMAT)], dim=1)
    alone = decoupled_advantages(rewards, MASK, LABELS, (1.0, 1.0))
    padded = decoupled_advantages(
        torch.cat([rewards, torch.full((2, 2), 9.0)]),
        torch.cat([MASK, torch.zeros(2, 4)]),
        [*LABELS, "pad", "pad"],
        (1.0, 1.0),
    )
    assert torch.equal(padded[:8], alone) and not padded[8:].any()


def test_constrained_advantages_are_a_difference_of_normalized_ones():
    costs = torch.cat([column([1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]), column(FORMAT)], dim=1)
    found = constrained_advantages(tokens(RIGHT), costs, MASK, LABELS, [0.7, 0.0], reward_weight=2.0)
    reward = group_relative_advantages(tokens(RIGHT), MASK, LABELS)
    cost = group_relative_advantages(tokens([row[0] for row in costs.tolist()]), MASK, LABELS)
    torch.testing.assert_close(found.double(), 2.0 * reward - 0.7 * cost, rtol=1e-5, atol=1e-6)
    by_hand = 2.0 * (1 - 2 / 3) / statistics.stdev([1, 0, 1]) - 0.7 * (1 - 1 / 3) / statistics.stdev([1, 0, 0])
    assert found[0, 0].item() == pytest.approx(by_hand, rel=1e-4)


def test_multipliers_rise_with_the_violation_and_end_at_zero():
    assert dual_ascent(0.5, mean_cost=0.4, limit=0.1, lr=0.2) == pytest.approx(0.56)
    assert dual_ascent(0.01, mean_cost=0.0, limit=0.1, lr=0.2) == 0.0


def test_a_cost_is_a_part_of_the_reward_or_whether_it_is_above_a_number():
    options = ConstraintOptions([{"name": "length", "above": 10, "limit": 0.1}, Cost("toxicity", 0.3)])
    parts = [{"length": 10.0, "toxicity": 0.2, "acc": 1.0}, {"length": 11.0, "toxicity": 0.9}]
    assert options.values(parts).tolist() == [[0.0, 0.2], [1.0, 0.9]]
    assert options.remembered({}) == {"length": 0.0, "toxicity": 0.0}
    assert options.remembered({"multipliers": {"toxicity": 0.4}}) == {"length": 0.0, "toxicity": 0.4}


def test_damping_counts_in_the_batch_and_is_not_remembered():
    options = ConstraintOptions([Cost("length", 0.1), Cost("toxicity", 0.3)], lr=0.2, initial=0.5, damping=4.0)
    assert [*options.ascended({}, [0.2, 0.1], options.damping).values()] == pytest.approx([0.9, 0.0])
    assert [*options.ascended({}, [0.2, 0.1], options.lr).values()] == pytest.approx([0.52, 0.46])
    published = ConstraintOptions([Cost("length", 0.1)], initial=0.5)
    assert published.ascended({}, [0.2], published.damping) == {"length": 0.5}


def test_a_part_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(ValueError, match=r"polite.*acc, format_ok$"):
        part_values([{"acc": 1.0, "format_ok": 1.0, "b": 0.0}, {"acc": 0.0, "format_ok": 1.0}], ["acc", "polite"])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_part_that_is_not_finite_is_refused_before_it_resets_a_multiplier_or_passes_a_limit(value):
    parts = [{"acc": 1.0, "length": 3.0}, {"acc": 0.0, "length": value}]
    with pytest.raises(ValueError, match="length"):
        part_values(parts, ["acc", "length"])
    with pytest.raises(ValueError, match="length"):
        ConstraintOptions([Cost("length", 0.1, above=10.0)]).values(parts)


@pytest.mark.parametrize("costs", ["length", {"name": "length", "limit": 1}, None, 3])
def test_costs_that_are_not_a_list_are_named_with_the_other_wrong_values(costs):
    with pytest.raises(ValueError, match=r"(?s)lr=0.*costs="):
        ConstraintOptions(costs, lr=0)


def test_items_and_lists_of_another_type_are_named():
    with pytest.raises(ValueError, match=r"(?s)costs: 3 .*costs: 5: "):
        ConstraintOptions([3, {"name": 5, "limit": 1}])
    with pytest.raises(ValueError, match=r"(?s)gdpo_reward_keys='acc'.*gdpo_reward_weights=0.5"):
        RewardWeights("acc", 0.5)


def test_wrong_options_are_all_named():
    with pytest.raises(ValueError, match=r"(?s)lr=0.*initial=-1.*reward_weight=-2.*'limt'.*length.*limit='x'"):
        ConstraintOptions(
            [{"name": "a", "limt": 1}, {"name": "length", "limit": "x"}], lr=0, initial=-1, reward_weight=-2
        )
    for costs in ([], [Cost("a", 0.1), Cost("a", 0.2, above=1.0)]):
        with pytest.raises(ValueError, match="each name once"):
            ConstraintOptions(costs)
    with pytest.raises(ValueError, match=r"(?s)weights\[1\]=nan.*each name once"):
        RewardWeights(["a", "a"], [1.0, math.nan])
    with pytest.raises(ValueError, match="give as many"):
        RewardWeights(["a", "b"], [1.0])
