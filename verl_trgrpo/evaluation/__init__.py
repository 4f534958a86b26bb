"""Evaluation of checkpoints on test files: vLLM, the project's rewards, avg@k and pass@k with confidence intervals.

The door is :func:`verl_trgrpo.evaluation.run.evaluate`.
"""
