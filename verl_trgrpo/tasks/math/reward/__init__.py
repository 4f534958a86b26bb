"""Reward for mathematical answers; `scorer` is the way in."""
