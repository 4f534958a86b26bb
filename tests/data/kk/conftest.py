import importlib.util

import pytest
from kk_files import SCRIPT, environment_for


@pytest.fixture(scope="session")
def kk():
    """The command line as a module; `kk.main(words)` returns the exit code."""
    specification = importlib.util.spec_from_file_location("kk_script", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def environment(tmp_path):
    return environment_for(tmp_path)
