"""See the wall some steps before a run meets it: reserved memory that grows from step to step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verl_trgrpo.memory.constants import ASLEEP, CARD, CONTEXT

ALLOCATED, RESERVED, MEAN_LENGTH = "perf/max_memory_allocated_gb", "perf/max_memory_reserved_gb", "response_length/mean"
# Steps that make a trend, those that it is computed from, and how far ahead it is believed, as a part of them.
_FEWEST, _RECENT, _AHEAD = 8, 30, 2.0


@dataclass(frozen=True)
class Wall:
    """A step near which the card has no memory left.

    Args:
        step: its number.
        growth: GiB that the trainer reserves more with each step.
        reserved: GiB that it reserves now.
        room: GiB that it can have.
        allocated_grows: what is in use grows, too; otherwise blocks of the allocator do not fit each other.
        longer: factor by which the responses grew meanwhile.
    """

    step: int
    growth: float
    reserved: float
    room: float
    allocated_grows: bool
    longer: float

    @property
    def message(self) -> str:
        """Return the wall, its cause and what to do in one sentence."""
        cause = f"responses are {self.longer:.1f} times as long" if self.longer > 1.1 else "what is in use grows"
        if not self.allocated_grows:
            cause = "what is in use does not grow, so blocks of the allocator no longer fit each other"
        remedy = (
            "lower actor_rollout_ref.actor.ppo_max_token_len_per_gpu (or ppo_micro_batch_size_per_gpu), or set "
            "actor_rollout_ref.model.use_fused_kernels=true, before"
        )
        return (
            f"at this growth the update fails near step {self.step}: the trainer reserves {self.reserved:.1f} of {self.room:.1f} "
            f"GiB, {self.growth:.2f} more with each step ({cause}); {remedy}"
        )


def coming_wall(rows: Sequence[tuple[int, Mapping[str, float]]], card_gb: float) -> Wall | None:
    """Return the wall that a run is about to meet, None where its memory does not grow, or where it is far away.

    The counters are those of the trainer's process, whose peak is the update. What it can have is the card without the contexts
    and the sleeping engine. What stays reserved when the engine wakes up is in no counter: veRL empties the cache before.

    Args:
        rows: number and metrics of the steps so far, in order.
        card_gb: of a card, as in its name.
    """
    known = [(number, metrics) for number, metrics in rows if RESERVED in metrics][-_RECENT:]
    if len(known) < _FEWEST:
        return None
    numbers = np.array([number for number, _ in known], float)
    reserved = np.maximum.accumulate([metrics[RESERVED] for _, metrics in known])
    room = CARD.value * card_gb - ASLEEP.value - 2 * CONTEXT.value
    growth, late = _slope(numbers, reserved), _slope(numbers[len(known) // 2 :], reserved[len(known) // 2 :])
    growth = min(growth, late)  # what has come to rest does not grow
    if not np.isfinite(growth) or growth <= 0 or reserved[-1] >= room * 1.5:
        return None
    steps = max(0.0, room - reserved[-1]) / growth
    if steps > _AHEAD * len(known):
        return None
    used = np.array([metrics.get(ALLOCATED, np.nan) for _, metrics in known])
    lengths = np.array([metrics.get(MEAN_LENGTH, np.nan) for _, metrics in known])
    half = len(known) // 2
    return Wall(
        step=int(numbers[-1] + steps),
        growth=float(growth),
        reserved=float(reserved[-1]),
        room=room,
        allocated_grows=bool(np.nanmax(used[half:]) > 1.02 * np.nanmax(used[:half]))
        if np.isfinite(used).all()
        else True,
        longer=float(lengths[half:].mean() / lengths[:half].mean()) if (lengths > 0).all() else 1.0,
    )


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    """Return the slope of the line through the ends of the halves' medians, which one outlier does not move."""
    if len(x) < 4:
        return 0.0
    half = len(x) // 2
    return float((np.median(y[half:]) - np.median(y[:half])) / (np.median(x[half:]) - np.median(x[:half])))
