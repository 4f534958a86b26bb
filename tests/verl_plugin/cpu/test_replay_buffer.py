"""The quick replay buffer is veRL's own with another interval."""

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.utils.import_utils import load_extern_type

ARGUMENTS = {
    "trainer_mode": "sync",
    "trainer_config": {},
    "max_off_policy_threshold": 8,
    "max_off_policy_strategy": "drop",
    "sampler_kwargs": {},
    "refill_fn": None,
}


def test_interval():
    cls = load_extern_type("pkg://verl_trgrpo.verl_plugin.cpu.replay_buffer", "QuickReplayBuffer")
    assert issubclass(cls, ReplayBuffer)
    assert cls(**ARGUMENTS).poll_interval == 0.2
    assert cls(**ARGUMENTS, poll_interval=1.0).poll_interval == 1.0
    assert ReplayBuffer(**ARGUMENTS).poll_interval > 1
