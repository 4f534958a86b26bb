"""veRL's replay buffer for runs whose steps take seconds, not minutes."""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class QuickReplayBuffer(ReplayBuffer):
    """Looks for finished rollouts five times a second instead of every two seconds.

    For ``trainer.v1.sampler.custom_sampler``, veRL's extension point, which leaves group filtering
    (``algorithm.filter_groups``) to the custom class: this one does not filter.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{"poll_interval": 0.2, **arguments})
