"""The scripts of recipes/demos as modules: they are outside the package and import each other by name."""

import importlib
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "recipes" / "demos"

sys.path.insert(0, str(SCRIPTS))

categories = importlib.import_module("categories")
demonstrations = importlib.import_module("demonstrations")
tiny_model = importlib.import_module("tiny_model")
warm_start = importlib.import_module("warm_start")
