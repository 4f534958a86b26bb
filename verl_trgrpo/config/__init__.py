"""Configuration files of this package."""

from pathlib import Path

OWN_CONFIGS = Path(__file__).parent
