"""Find what is wrong with a run before it starts; :func:`verl_trgrpo.checks.check.check` makes all checks."""
