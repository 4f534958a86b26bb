"""Running veRL's trainer as a child process: environment, early checks, progress, clean stop.

The door is :func:`verl_trgrpo.runs.launch.run.run_training`.
"""
