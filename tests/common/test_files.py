"""Files and directories that appear whole, and locks."""

import os

import pytest

from verl_trgrpo.common.files import BusyError, lock, read_json, staged_directory, write_json, write_text

NAMES = ["test.parquet", "train.parquet"]


def fill(directory, text):
    for name in NAMES:
        (directory / name).write_text(f"{text} {name}")


def content(directory):
    return {path.name: path.read_text() for path in directory.iterdir() if path.is_file()}


def test_a_file_is_replaced_and_nothing_else_remains(tmp_path):
    for text in ("old", "né\n"):
        write_text(tmp_path / "a", text)
    assert content(tmp_path) == {"a": "né\n"}


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    write_text(tmp_path / "a", "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a", "\ud800")
    assert content(tmp_path) == {"a": "old"}


def test_json_is_readable_and_reads_as_it_was_written(tmp_path):
    write_json(tmp_path / "a", {"é": [1, None]})
    assert read_json(tmp_path / "a") == {"é": [1, None]}
    write_json(tmp_path / "a", {"é": tmp_path}, default=str)
    assert (tmp_path / "a").read_text(encoding="utf-8") == f'{{\n  "é": "{tmp_path}"\n}}\n'


@pytest.mark.parametrize("text", [b"{", b"[1]", b"\xff", None])
def test_what_is_no_json_object_reads_as_an_empty_one(tmp_path, text):
    if text is not None:
        (tmp_path / "a").write_bytes(text)
    assert read_json(tmp_path / "a") == {}


def test_a_new_directory_appears_with_its_files(tmp_path):
    out = tmp_path / "new" / "deep"
    with staged_directory(out) as stage:
        fill(stage, "new")
        assert not out.exists()
    assert content(out) == {name: f"new {name}" for name in NAMES}
    assert {path.name for path in out.parent.iterdir()} == {"deep", ".deep.lock"}


def test_files_are_replaced_and_others_stay(tmp_path):
    out = tmp_path / "out"
    (out / "kept").mkdir(parents=True)
    fill(out, "old")
    (out / "kept" / "notes.txt").write_text("mine")
    with staged_directory(out, lambda _: ["train.parquet", "never.parquet"]) as stage:
        (stage / "test.parquet").write_text("new")
        assert content(out) == {name: f"old {name}" for name in NAMES}
    assert content(out) == {"test.parquet": "new"}
    assert content(out / "kept") == {"notes.txt": "mine"}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_all_as_it_was(tmp_path, error):
    (tmp_path / "old").mkdir()
    fill(tmp_path / "old", "old")
    for name in ("old", "new"):
        with pytest.raises(error), staged_directory(tmp_path / name) as stage:
            fill(stage, "new")
            raise error
    assert content(tmp_path / "old") == {name: f"old {name}" for name in NAMES}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["old"]


def test_a_place_that_cannot_be_written_is_found_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write to .*; choose"), staged_directory(tmp_path / "file" / "below"):
        pytest.fail("the block must not run")


def test_a_directory_that_is_being_built_is_refused(tmp_path):
    message = f"another process \\({os.getpid()}\\) is building"
    with (
        staged_directory(tmp_path / "out"),
        pytest.raises(ValueError, match=message),
        staged_directory(tmp_path / "out"),
    ):
        pytest.fail("the block must not run")


def test_a_lock_is_held_by_one_and_free_after_it(tmp_path):
    for _ in range(2):
        with lock(tmp_path / "lock", "busy") as descriptor:
            assert os.pread(descriptor, 64, 0).decode() == str(os.getpid())
            with pytest.raises(BusyError, match=f"held by {os.getpid()}"), lock(tmp_path / "lock", "held by {holder}"):
                pytest.fail("the block must not run")
