"""Hydra finds plugins in packages below the namespace ``hydra_plugins``."""
