"""The plugin on the path of every process, and fixtures of the repository's tests."""

import os
from pathlib import Path

import pytest

from tests.conftest import fast_compositions, sound_run  # noqa: F401

PLUGIN = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    """Processes that a test starts find the plugin, as pytest does (``pythonpath`` in pyproject.toml)."""
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN), prepend=os.pathsep)
