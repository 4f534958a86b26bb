"""The replay buffer gets from its configuration what veRL hands to its own: dynamic sampling, refill, poll interval."""

import pytest
import torch
from verl.utils.import_utils import load_extern_object

from tests.conftest import composed
from verl_trgrpo.core.advantages import group_numbers, success_rates
from verl_trgrpo.verl_plugin.group_metrics_buffer import Rewards

FILTER = ["algorithm.filter_groups.enable=true"]
REFILL = ["trainer.v1.sampler.sync_refill_failed_groups=true"]


def build(overrides, mode="sync"):
    """Build the buffer as veRL's trainer does for a custom sampler."""
    config = composed(overrides).config
    sampler = config.trainer.v1.sampler
    return load_extern_object(sampler.custom_sampler.path, sampler.custom_sampler.name)(
        trainer_mode=mode,
        trainer_config=config.trainer.v1.get(mode, {}),
        max_off_policy_threshold=sampler.max_off_policy_threshold,
        max_off_policy_strategy=sampler.max_off_policy_strategy,
        sampler_kwargs=sampler.sampler_kwargs,
        refill_fn=lambda count: None,
    )


def test_nothing_is_filtered_or_refilled_unless_asked_for():
    buffer = build([])
    assert (buffer.filter_groups_metric, buffer.sync_refill_failed_groups, buffer.poll_interval) == (None, False, 2.0)


@pytest.mark.parametrize(
    ("overrides", "metric"),
    [
        (FILTER, "reward"),
        ([*FILTER, "algorithm.filter_groups.metric=acc"], "acc"),
        (["algorithm=dapo"], "acc"),
        (["algorithm=tr_dapo"], "acc"),
    ],
)
def test_dynamic_sampling_filters_by_the_metric_with_every_algorithm(overrides, metric):
    buffer = build([*overrides, "algorithm.filter_groups.max_inflight_gen_batches=3", "data.train_batch_size=64"])
    assert (buffer.filter_groups_metric, buffer.max_inflight_gen_batches) == (metric, 3)
    assert (buffer.train_batch_size, buffer.gen_batch_size) == (64, 1)
    assert build(overrides, "separate_async").filter_groups_metric == metric


def test_failed_groups_are_refilled_as_in_stock_verl():
    buffer = build(REFILL)
    assert (buffer.sync_refill_failed_groups, buffer.gen_batch_size, buffer.filter_groups_metric) == (True, 1, None)


def test_the_success_rate_is_computed_only_for_a_shaping_that_takes_it():
    name = "actor_rollout_ref.actor.policy_loss.shaping.name=tests.verl_plugin.input_shapings.hard_prompts"
    own = ["algorithm=tr_grpo", "shaping=custom", name]
    asked = [bool(build(given).sampler_kwargs.success_rate) for given in ([], ["algorithm=grpo"], own)]
    assert asked == [False, False, True]


def test_the_success_rate_is_the_share_of_right_responses_of_the_group():
    rates = success_rates(torch.tensor([1.0, 0.9, 1.0, 2.0, -1.0, 0.0]), group_numbers(list("abbbac")), 1.0)
    assert rates.tolist() == pytest.approx([1 / 2, 2 / 3, 2 / 3, 2 / 3, 1 / 2, 0])


def test_a_session_counts_once_however_many_outputs_it_has():
    keys = ["a_b_0_0", "a_b_0_1", "a_b_0_2", "a_b_1_0", "c_0_0", "c_1_0"]
    scores = [1.0, 1.0, 1.0, 0.0, 1.0, 1.0]
    rewards = Rewards(keys, scores, [{"acc": score} for score in scores])
    assert rewards.success_rates(1.0).tolist() == [0.5, 0.5, 0.5, 0.5, 1.0, 1.0]
    assert rewards.metrics() == {"critic/equal_groups_frac": 0.5, "critic/reward/acc/mean": 0.75}
    assert Rewards(keys, scores, []).metrics() == {"critic/equal_groups_frac": 0.5}
