"""Reward for Knights-and-Knaves puzzles; `scorer` is the way in."""
