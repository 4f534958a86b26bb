"""Advantages in pure torch: GRPO's group-relative ones, and what related methods make of them."""

from verl_trgrpo.core.advantages.difficulty import DifficultyAnchor, DifficultyOptions, difficulty_weighted_advantages
from verl_trgrpo.core.advantages.group_relative import group_relative_advantages
from verl_trgrpo.core.advantages.rejection import RejectionOptions, rejection_advantages

__all__ = [
    "DifficultyAnchor",
    "DifficultyOptions",
    "RejectionOptions",
    "difficulty_weighted_advantages",
    "group_relative_advantages",
    "rejection_advantages",
]
