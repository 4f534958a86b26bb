"""Trackers without an account. Their clients are not installed with the tests: a module of the same name says what one says."""

import sys

import pytest

from tests.checks.validation import summary
from tests.conftest import composed
from verl_trgrpo.checks.trackers import account_findings, demanded_variables
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level

CLIENT = """
import os

def login(verify=True):
    if os.environ.get("WANDB_MODE") != "offline" and not os.environ.get("WANDB_API_KEY"):
        raise RuntimeError("No API key configured. Use `wandb login` to log in.")
"""


def findings(logger, trains=False):
    return account_findings(RunView(composed([f"trainer.logger=[console,{logger}]"]), trains=trains))


@pytest.fixture
def clients(tmp_path, monkeypatch):
    (tmp_path / "wandb.py").write_text(CLIENT)
    (tmp_path / "volcengine_ml_platform.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    yield
    sys.modules.pop("wandb", None)


@pytest.mark.parametrize("name", ["wandb", "tracking"])
def test_a_tracker_without_a_key_is_an_error_where_the_run_trains(clients, name):
    assert summary(findings(name)) == [("trainer.logger", Level.NOT_CHECKED)]
    [finding] = findings(name, trains=True)
    assert finding.level is Level.ERROR
    assert "No API key configured" in finding.message and "WANDB_API_KEY" in finding.message.partition("; ")[2]


@pytest.mark.parametrize("variable", ["WANDB_API_KEY=secret", "WANDB_MODE=offline"])
def test_with_a_key_or_without_a_network_nothing_is_missing(clients, monkeypatch, variable):
    monkeypatch.setenv(*variable.split("="))
    assert findings("wandb", trains=True) == []


def test_variables_that_verl_takes_without_a_default_are_named(clients, monkeypatch):
    assert demanded_variables() == ["MLP_TRACKING_REGION", "VOLC_ACCESS_KEY_ID", "VOLC_SECRET_ACCESS_KEY"]
    monkeypatch.setenv("VOLC_ACCESS_KEY_ID", "a")
    [finding] = findings("vemlp_wandb", trains=True)
    assert "VOLC_SECRET_ACCESS_KEY" in finding.message and "VOLC_ACCESS_KEY_ID" not in finding.message


def test_trackers_without_an_account_are_asked_nothing():
    assert findings("file", trains=True) == []
