"""The buffer that a word of several rewards brings along; tests/cluster/test_all_algorithms.py draws batches from it."""

import pytest

from tests.verl_plugin.test_group_metrics_buffer import FILTER, build
from verl_trgrpo.experimental.multi_reward.replay_buffer import RewardParts


@pytest.mark.parametrize("word", ["gdpo", "constrained_grpo"])
@pytest.mark.parametrize("mode", ["sync", "separate_async"])
def test_it_is_the_project_s_buffer_with_what_the_word_adds(word, mode):
    buffer = build([f"algorithm={word}", *FILTER, "data.train_batch_size=64"], mode)
    assert isinstance(buffer, RewardParts) and buffer.filter_groups_metric == "reward" and buffer.poll_interval == 2.0
    given = buffer.sampler_kwargs
    assert given.adv_estimator == {"gdpo": "tr_gdpo"}.get(word, word)
    assert ("costs" in (given.get("constrained_grpo") or {})) is (word == "constrained_grpo")
    assert not isinstance(build(["algorithm=grpo"], mode), RewardParts)
