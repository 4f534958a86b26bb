"""Reward for question answering with search: exact match and token F1 of a short answer."""

from verl_trgrpo.tasks.search_qa.reward.scorer import score_search_qa

__all__ = ["score_search_qa"]
