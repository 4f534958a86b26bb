"""Hydra configuration files: ``trgrpo_trainer``, what builds on it, and the groups ``algorithm``, ``platform`` and ``agent``."""
