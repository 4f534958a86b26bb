"""Hydra configuration files: ``trgrpo_trainer``, and the groups ``algorithm`` and ``platform``."""
