"""The rest of tests/test_strangers.py: commands whose cases take seconds, with all kinds of things in place of each file."""

import pytest

from tests.test_strangers import SLOW, try_instead


@pytest.mark.parametrize("command", SLOW)
def test_every_file_of_a_directory_may_be_anything(tmp_path, monkeypatch, capfd, command):
    assert try_instead(command, tmp_path, monkeypatch, capfd) == []
