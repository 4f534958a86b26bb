"""Keys that no code of veRL reads: the table is that of the installed release, and a run that sets one is told so."""

import importlib.util
from pathlib import Path

import pytest
import yaml

from tests.conftest import composed
from verl_trgrpo.checks.unread import unread_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.readers import key_table

SCRIPT = Path(__file__).parents[2] / "docs" / "make_key_table.py"
TILED = "actor_rollout_ref.model.tiled_mlp"


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_key_table", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_that_of_the_installed_release(maker):
    made = yaml.safe_load(maker.installed_table())
    assert made == key_table(), f"run {SCRIPT.name} again"
    for key, trainers in {
        "data.reward_fn_key": 4,
        "data.return_raw_chat": 4,
        "skip.async_rollout": 3,
        TILED: 4,
        "critic.ppo_max_token_len_per_gpu": 1,
        "trainer.balance_batch": 1,
    }.items():
        assert len(made["unread"][key]) == trainers
    for key in (
        "actor_rollout_ref.rollout.n",
        "algorithm.adv_estimator",
        "actor_rollout_ref.actor.kl_loss_coef",
        "trainer.save_freq",
    ):
        assert key not in made["unread"]


MAIN = """
from verl.own import *
from verl.engine import Engine, Keeper
def main(config):
    options = config.actor
    print(options.lr, config.get("seed"), config["data"]["files"], getattr(config.data, "size"))
    if config.older:
        from verl.older import run
        run(config)
    Engine(config.actor)
    Keeper(config)
"""
ENGINE = """
import os
@dataclass
class Engine:
    path: str
    never: int
    def __post_init__(self):
        self.eps = self.path
class Keeper:
    def __init__(self, config):
        self.stored = config.actor.stored
        self.used = config.get("used")
    @annotate(role="by_role")
    def use(self):
        return self.used
class Left:
    def use(self, config):
        return config.actor.unused
def helper(engine_config):
    return engine_config.eps, os.path.sep, engine_config.data.eps2
"""


def test_a_key_is_read_where_the_trainer_gets_to(tmp_path, maker, monkeypatch):
    package = tmp_path / "verl"
    package.mkdir()
    files = {
        "__init__": "",
        "main": MAIN,
        "engine": ENGINE,
        "own": "",
        "older": "def run(config):\n    config.data.old\n",
    }
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.setattr(maker, "TRAINERS", {"new": ("verl.main", ("verl.older",)), "old": ("verl.main", ())})
    keys = [
        "actor.lr", "actor.eps", "actor.unused", "data.files", "data.size", "data.old", "data.eps2", "seed", "older", "data.path",
        "actor.stored", "actor.used", "actor.by_role",
    ]  # fmt: skip
    config = dict.fromkeys(keys) | {"actor._target_": "verl.engine.Engine"}
    found = maker.unread_keys(maker.Source(package), config)
    both, new = ["new", "old"], ["new"]
    assert found == {
        "actor.eps": both, "actor.unused": both, "actor.never": both, "data.eps2": both, "data.old": new, "actor.stored": both,
    }  # fmt: skip


CASES = {
    "data.reward_fn_key=source": Level.WARNING,
    f"{TILED}.enabled=true": Level.WARNING,
    "algorithm.filter_groups.enable=true trainer.use_v1=false": Level.WARNING,
    "algorithm=dapo trainer.use_v1=false": Level.ERROR,
    "algorithm=dapo": None,
    "data.seed=3": None,
    "trainer.esi_redundant_time=5 trainer.use_v1=false": None,
    "trainer.esi_redundant_time=5": Level.WARNING,
}


@pytest.mark.parametrize("words", CASES)
def test_a_setting_that_is_never_read_is_named(words):
    level = CASES[words]
    view = RunView(composed(words.split()))
    found = unread_findings(view)
    assert [each.level for each in found] == ([level] if level else [])
    for each in found:
        assert each.message.startswith(f"{each.where}=") and key_table()["verl"] in each.message
