"""The door to foreign files: what passes, and what is named."""

import os
from functools import partial

import pytest

from verl_trgrpo.common.files import file_sha256, json_lines
from verl_trgrpo.common.foreign import (
    ForeignFileError,
    check_model_directory,
    is_entry,
    lines_of,
    open_foreign,
    read_foreign,
    read_foreign_json,
    real_path,
)

INSTEAD = {
    "not a regular file": [os.mkfifo, os.mkdir],
    "is a link": [partial(os.symlink, target) for target in ("/dev/zero", "/", ".", "..", "gone", "file")],
}


@pytest.mark.parametrize("reading", [open_foreign, read_foreign, read_foreign_json])
@pytest.mark.parametrize(("reason", "make"), [(reason, make) for reason, makes in INSTEAD.items() for make in makes])
def test_what_is_no_file_is_named(tmp_path, reading, reason, make):
    make(tmp_path / "file")
    with pytest.raises(ForeignFileError, match=f"file {reason if reason.startswith('is') else 'is ' + reason}"):
        reading(tmp_path / "file")


@pytest.mark.parametrize("name", ["gone", "file/below"])
def test_a_missing_file_is_missing_and_a_name_that_cannot_be_is_named(tmp_path, name):
    (tmp_path / "file").write_text("{}")
    with pytest.raises(FileNotFoundError):
        open_foreign(tmp_path / name)
    assert not is_entry(tmp_path / name) and not is_entry(tmp_path)
    for impossible in ("a\0b", "x" * 300, "\ud800"):
        with pytest.raises(ForeignFileError, match="cannot be opened"):
            open_foreign(tmp_path / impossible)


def test_a_file_has_a_size_and_a_line_has_one(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"ab\ncdef")
    assert read_foreign(path, 7) == b"ab\ncdef"
    with pytest.raises(ForeignFileError, match="has 7 bytes, more than the 6"):
        read_foreign(path, 6)
    with open_foreign(path) as file:
        assert [*lines_of(file, path, 4)] == [b"ab\n", b"cdef"]
    with open_foreign(path) as file, pytest.raises(ForeignFileError, match="line 2: it has more than 3 bytes"):
        [*lines_of(file, path, 3)]


def test_what_a_user_names_may_be_a_link(tmp_path):
    (tmp_path / "b.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "a.jsonl").symlink_to("b.jsonl")
    assert [*json_lines(tmp_path / "a.jsonl")] == [(1, {"a": 1})]
    assert file_sha256(tmp_path / "a.jsonl") == file_sha256(tmp_path / "b.jsonl")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(ForeignFileError, match="is a link"):
        open_foreign(real_path(tmp_path / "circle"))


def test_a_snapshot_of_the_cache_leads_into_its_own_blobs_alone(tmp_path):
    blobs, snapshot = tmp_path / "models--x" / "blobs", tmp_path / "models--x" / "snapshots" / "abc"
    for place in (blobs, snapshot, tmp_path / "other" / "blobs"):
        place.mkdir(parents=True)
    (blobs / "1").write_text('{"a": 1}')
    (tmp_path / "other" / "blobs" / "2").write_text('{"a": 2}')
    (snapshot / "config.json").symlink_to("../../blobs/1")
    assert read_foreign_json(snapshot / "config.json") == {"a": 1}
    check_model_directory(snapshot)
    (snapshot / "more.json").symlink_to("../../../other/blobs/2")
    with pytest.raises(ForeignFileError, match=r"more\.json is a link"):
        check_model_directory(snapshot)


@pytest.mark.parametrize("make", [makes[0] for makes in INSTEAD.values()])
def test_a_model_is_looked_through_to_its_last_directory(tmp_path, make):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "weights.safetensors").touch()
    check_model_directory(tmp_path)
    os.truncate(tmp_path / "a" / "b" / "weights.safetensors", 1 << 40)  # sparse; weights may be large
    check_model_directory(tmp_path)
    make(tmp_path / "a" / "b" / ".hidden")
    with pytest.raises(ForeignFileError, match="hidden is"):
        check_model_directory(tmp_path)


def test_a_tokenizer_is_not_a_terabyte_and_a_model_not_ten_thousand_files(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").touch()
    os.truncate(tmp_path / "tokenizer.json", 1 << 40)
    with pytest.raises(ForeignFileError, match=r"tokenizer\.json has"):
        check_model_directory(tmp_path)
    monkeypatch.setattr("verl_trgrpo.common.foreign._MOST_ENTRIES", 2)
    os.truncate(tmp_path / "tokenizer.json", 1)
    for name in "ab":
        (tmp_path / name).touch()
    with pytest.raises(ForeignFileError, match="more than 2 entries"):
        check_model_directory(tmp_path)
