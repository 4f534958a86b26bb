"""Find what is wrong with a run before it starts; :func:`verl_trgrpo.runs.validate.check` makes all checks."""
