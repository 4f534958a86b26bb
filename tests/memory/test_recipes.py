"""What recipes and the page say of machines is what the plan says."""

import re

import pytest

from studies.memory.recipe_machines import CARDS, LINE, MODELS, RECIPES, line_of, verdicts
from tests.memory.models import ROOT
from verl_trgrpo.memory.constants import CONSTANTS
from verl_trgrpo.memory.verdict import DOES_NOT, FITS

PHASES = (
    "engine start",
    "cache",
    "rollout",
    "weight sync",
    "log-probabilities",
    "reference",
    "update",
    "optimizer step",
    "save",
)


def test_every_recipe_has_a_line():
    named = {f"{path.parent.name}/{path.stem}" for path in RECIPES.glob("*/*.yaml") if path.stem != "base"}
    assert named == MODELS.keys()


@pytest.mark.parametrize("recipe", MODELS)
def test_a_recipe_names_the_machines_of_the_plan(recipe):
    text = (RECIPES / f"{recipe}.yaml").read_text()
    assert LINE.findall(text) == [line_of(recipe)]
    stated = re.search(r"(?:(\d) GPUs of|sized for) (\d+) GiB", text)
    cards, gb = int(stated[1] or 1), int(stated[2])
    kinds = {(number, each): kind for number, each, kind in verdicts(recipe)}
    assert gb in CARDS and kinds[cards, gb] == FITS


def test_a_recipe_on_small_cards_does_not_fit():
    kinds = {(number, gb): kind for number, gb, kind in verdicts("knights_and_knaves/qwen2.5-7b-instruct-1m")}
    assert kinds[2, 24] == kinds[4, 24] == DOES_NOT


def test_the_page_has_every_phase_and_constant():
    page = (ROOT / "docs/will_it_fit.md").read_text()
    assert [phase for phase in PHASES if f"| {phase} |" not in page] == []
    cells = {name: f"| {name} | {each.value:g} | {each.error:g} |" for name, each in CONSTANTS.items()}
    assert [name for name, row in cells.items() if row not in page] == []
