"""Model and data of ``verl-trgrpo quickstart``. ``examples/makers``, outside the package, made the model."""
