"""Configuration files of this package, and of the experiments beside it."""

from pathlib import Path

OWN_CONFIGS = Path(__file__).parent

# What Hydra searches after the application's own directories. An experiment brings its words in a directory of its own.
CONFIG_DIRECTORIES = (OWN_CONFIGS, *sorted(OWN_CONFIGS.parent.glob("experimental/*/config")))
