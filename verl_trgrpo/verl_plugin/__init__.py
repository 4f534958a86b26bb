"""All that meets veRL: registration (``register``, which veRL imports), options, the loss, the estimators, the CPU platform."""
