"""The scripts of recipes/chains as modules."""

from tests.scripts import ROOT, load_scripts

FOLDER = ROOT / "recipes" / "chains"
chains, study = load_scripts(FOLDER, "chains", "study")
