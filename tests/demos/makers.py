"""The scripts of recipes/demos as modules."""

from tests.scripts import ROOT, load_scripts

SCRIPTS = ROOT / "recipes" / "demos"
categories, demonstrations, tiny_model, warm_start = load_scripts(
    SCRIPTS, "categories", "demonstrations", "tiny_model", "warm_start"
)
