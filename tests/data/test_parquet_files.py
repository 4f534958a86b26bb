import json
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_trgrpo.data.parquet import file_sha256, is_intact, read_manifest, write_manifest, write_parquet

NAMES = ["train.parquet", "test.parquet"]


def fill(directory, text):
    for name in NAMES:
        (directory / name).write_text(f"{text} {name}")


def test_equal_rows_give_equal_bytes_and_the_same_rows_back(tmp_path):
    rows = [{"text": "Zoë", "names": ["a", "b"]}, {"text": "", "names": []}]
    schema = pa.schema([("text", pa.string()), ("names", pa.list_(pa.string()))])
    for name in NAMES:
        write_parquet(tmp_path / name, rows, schema)
        time.sleep(0.01)
    assert (tmp_path / NAMES[0]).read_bytes() == (tmp_path / NAMES[1]).read_bytes()
    assert pq.read_table(tmp_path / NAMES[0]).to_pylist() == rows


def test_manifest_comes_back_and_tells_changed_files_from_intact_ones(tmp_path):
    fill(tmp_path, "new")
    manifest = {"files": {name: {"sha256": file_sha256(tmp_path / name)} for name in NAMES}, "who": "Zoë"}
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    assert is_intact(tmp_path, manifest)
    (tmp_path / NAMES[1]).write_text("changed")
    assert not is_intact(tmp_path, manifest)
    (tmp_path / NAMES[1]).unlink()
    assert not is_intact(tmp_path, manifest)


def test_sha256_is_the_published_one_of_abc(tmp_path):
    (tmp_path / "abc").write_text("abc")
    assert file_sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("text", [None, "", "{", "[1]", json.dumps("text")])
def test_an_unreadable_manifest_counts_as_none(tmp_path, text):
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    assert read_manifest(tmp_path) is None
