"""Evaluate checkpoints on test files: vLLM, the project's rewards, avg@k and pass@k with confidence intervals.

The entry point is :func:`verl_trgrpo.evaluation.evaluate.evaluate`.
"""
