"""The scripts of recipes/chains as modules."""

import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "recipes" / "chains"

sys.path.insert(0, str(FOLDER))
try:
    chains = importlib.import_module("chains")
    study = importlib.import_module("study")
finally:
    sys.path.remove(str(FOLDER))
