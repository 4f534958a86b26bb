"""Connect the core to veRL: registration (``register``, which veRL imports), options, losses, estimators, CPU platform."""
