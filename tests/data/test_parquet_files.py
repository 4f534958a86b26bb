import json
import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_trgrpo.data.parquet import file_sha256, is_intact, read_manifest, staged_files, write_manifest, write_parquet

NAMES = ["train.parquet", "test.parquet"]


def fill(directory, text):
    for name in NAMES:
        (directory / name).write_text(f"{text} {name}")


def content(directory):
    return {path.name: path.read_text() for path in directory.iterdir()}


def test_files_appear_under_their_names_and_nothing_else_remains(tmp_path):
    out = tmp_path / "new" / "deep"
    with staged_files(out, NAMES) as stage:
        fill(stage, "new")
        (stage / "scratch").write_text("not asked for")
    assert content(out) == {name: f"new {name}" for name in NAMES}


def test_files_are_replaced_and_others_stay(tmp_path):
    fill(tmp_path, "old")
    (tmp_path / "notes.txt").write_text("mine")
    with staged_files(tmp_path, NAMES) as stage:
        fill(stage, "new")
        assert (tmp_path / NAMES[0]).read_text() == f"old {NAMES[0]}"
    assert content(tmp_path) == {"notes.txt": "mine"} | {name: f"new {name}" for name in NAMES}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_the_old_files_alone(tmp_path, error):
    fill(tmp_path, "old")
    with pytest.raises(error), staged_files(tmp_path, NAMES) as stage:
        fill(stage, "new")
        raise error
    assert content(tmp_path) == {name: f"old {name}" for name in NAMES}


def test_an_exception_leaves_no_new_directory(tmp_path):
    with pytest.raises(RuntimeError), staged_files(tmp_path / "a" / "b", NAMES):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("old", [True, False])
def test_a_failure_between_two_renames_takes_the_first_one_back(tmp_path, old):
    (tmp_path / NAMES[1]).write_text("a file cannot be replaced by a directory")
    if old:
        (tmp_path / NAMES[0]).write_text("old")
    before = content(tmp_path)
    with pytest.raises(OSError), staged_files(tmp_path, NAMES) as stage:
        (stage / NAMES[0]).write_text("new")
        (stage / NAMES[1]).mkdir()
    assert content(tmp_path) == before


def test_a_file_that_was_not_written_stops_everything(tmp_path):
    fill(tmp_path, "old")
    with pytest.raises(FileNotFoundError), staged_files(tmp_path, NAMES) as stage:
        (stage / NAMES[0]).write_text("new")
    assert content(tmp_path) == {name: f"old {name}" for name in NAMES}


def test_a_directory_in_the_way_is_found_before_the_work(tmp_path):
    (tmp_path / NAMES[1]).mkdir()
    with pytest.raises(ValueError, match=r"test\.parquet is a directory"), staged_files(tmp_path, NAMES):
        pytest.fail("the block must not run")


def test_a_place_that_cannot_be_written_is_found_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match=r"cannot write to .*; choose"), staged_files(place, NAMES):
            pytest.fail("the block must not run")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_write_protected_directory_is_found_before_the_work(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(ValueError, match="Permission denied"), staged_files(tmp_path, NAMES):
        pytest.fail("the block must not run")


def test_a_killed_process_leaves_the_old_files(tmp_path):
    fill(tmp_path, "old")
    code = (
        "import pathlib, sys, time\n"
        "from verl_trgrpo.data.parquet import staged_files\n"
        f"with staged_files(pathlib.Path(sys.argv[1]), {NAMES!r}) as stage:\n"
        f"    (stage / {NAMES[0]!r}).write_text('new')\n"
        "    print('written', flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "written\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert {name: (tmp_path / name).read_text() for name in NAMES} == {name: f"old {name}" for name in NAMES}
    assert all(path.name.startswith(".building-") for path in tmp_path.iterdir() if path.name not in NAMES)


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


@pytest.mark.parametrize("manifest", [{}, {"files": None}, {"files": {"a": {}}}, {"files": ["a"]}])
def test_a_manifest_of_another_shape_is_not_intact(tmp_path, manifest):
    (tmp_path / "a").write_text("")
    assert not is_intact(tmp_path, manifest)
