"""What can be known to be wrong with a run before it starts; :func:`verl_trgrpo.runs.validate.check` asks all of it."""
