import pytest

from tests.data.builder_files import environment_for, load_script


@pytest.fixture(scope="session")
def kk():
    """The command line as a module; `kk.main(words)` returns the exit code."""
    return load_script("kk")


@pytest.fixture
def environment(tmp_path):
    return environment_for(tmp_path)
