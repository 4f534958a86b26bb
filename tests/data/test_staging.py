"""Files that appear together: replaced, left alone, interrupted at every step."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from verl_trgrpo.data import staging
from verl_trgrpo.data.staging import staged_files

NAMES = ["test.parquet", "train.parquet"]


def fill(directory, text):
    for name in NAMES:
        (directory / name).write_text(f"{text} {name}")


def content(directory):
    return {path.name: path.read_text() for path in directory.iterdir() if path.is_file()}


def test_files_appear_under_their_names_and_nothing_else_remains(tmp_path):
    out = tmp_path / "new" / "deep"
    with staged_files(out) as stage:
        fill(stage, "new")
    assert content(out) == {name: f"new {name}" for name in NAMES}


def test_files_are_replaced_and_others_stay(tmp_path):
    fill(tmp_path, "old")
    (tmp_path / "notes.txt").write_text("mine")
    with staged_files(tmp_path) as stage:
        fill(stage, "new")
        assert (tmp_path / NAMES[0]).read_text() == f"old {NAMES[0]}"
    assert content(tmp_path) == {"notes.txt": "mine"} | {name: f"new {name}" for name in NAMES}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_the_old_files_alone(tmp_path, error):
    fill(tmp_path, "old")
    with pytest.raises(error), staged_files(tmp_path) as stage:
        fill(stage, "new")
        raise error
    assert content(tmp_path) == {name: f"old {name}" for name in NAMES}


def test_an_exception_leaves_no_new_directory(tmp_path):
    with pytest.raises(RuntimeError), staged_files(tmp_path / "a" / "b"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_found_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match=r"cannot write to .*; choose"), staged_files(place):
            pytest.fail("the block must not run")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_write_protected_directory_is_found_before_the_work(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(ValueError, match="Permission denied"), staged_files(tmp_path):
        pytest.fail("the block must not run")


def test_old_files_of_the_same_data_set_vanish_if_they_are_not_made_again(tmp_path):
    fill(tmp_path, "old")
    with staged_files(tmp_path, replaces=["train.parquet", "never.parquet"]) as stage:
        (stage / "test.parquet").write_text("new")
    assert content(tmp_path) == {"test.parquet": "new"}


def test_a_directory_with_subdirectories_keeps_them(tmp_path):
    fill(tmp_path, "old")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("mine")
    with staged_files(tmp_path, replaces=NAMES) as stage:
        (stage / "test.parquet").write_text("new")
    assert content(tmp_path) == {"test.parquet": "new"}
    assert content(tmp_path / "kept") == {"file": "mine"}


def test_somebody_who_works_in_a_subdirectory_notices_nothing(tmp_path, monkeypatch):
    (tmp_path / "out" / "kept").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "out" / "kept")
    inode = Path.cwd().stat().st_ino
    with staged_files(tmp_path / "out") as stage:
        fill(stage, "new")
    assert (tmp_path / "out" / "kept").stat().st_ino == inode


def test_a_stage_in_use_is_left_alone(tmp_path):
    out = tmp_path / "out"
    with staged_files(out) as first:
        (first / "test.parquet").write_text("first")
        with staged_files(out) as second:
            (second / "train.parquet").write_text("second")
        assert content(out) == {"train.parquet": "second"}
    assert content(out) == {"train.parquet": "second", "test.parquet": "first"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_working_directory_stays_the_same_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inode = tmp_path.stat().st_ino
    with staged_files(tmp_path) as stage:
        fill(stage, "new")
    assert tmp_path.stat().st_ino == inode
    assert content(tmp_path) == {name: f"new {name}" for name in NAMES}


def test_a_link_to_the_directory_still_leads_there(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with staged_files(tmp_path / "link") as stage:
        fill(stage, "new")
    assert (tmp_path / "link").is_symlink()
    assert content(tmp_path / "real") == {name: f"new {name}" for name in NAMES}


def test_a_new_directory_has_the_usual_mode_and_an_old_one_keeps_its_own(tmp_path):
    (tmp_path / "usual").mkdir()
    (tmp_path / "old").mkdir(mode=0o750)
    for name in ("new", "old"):
        with staged_files(tmp_path / name) as stage:
            fill(stage, "new")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o750


def test_a_directory_in_the_way_is_an_error(tmp_path):
    (tmp_path / NAMES[1]).mkdir()
    with pytest.raises(ValueError, match=r"train\.parquet is a directory"), staged_files(tmp_path) as stage:
        fill(stage, "new")
    assert [path.name for path in tmp_path.iterdir()] == [NAMES[1]]


@pytest.mark.parametrize("fails", ["first", "second"])
def test_without_a_swap_a_failure_takes_everything_back(tmp_path, monkeypatch, fails):
    monkeypatch.setattr(staging, "exchange", lambda one, other: False)
    fill(tmp_path, "old")
    calls, replace = [], type(tmp_path).replace

    def rename(path, target):
        calls.append(target)
        if len(calls) == (1 if fails == "first" else 2):
            raise OSError("disk gone")
        return replace(path, target)

    monkeypatch.setattr(type(tmp_path), "replace", rename)
    with pytest.raises(OSError, match="disk gone"), staged_files(tmp_path) as stage:
        fill(stage, "new")
    assert content(tmp_path) == {name: f"old {name}" for name in NAMES}


def killed_at_event(number, directory):
    """In a child: replace the files and be killed at the given event of the file system. Returns whether it was."""
    child = os.fork()
    if child == 0:
        events = 0

        def count(event, _):
            nonlocal events
            if event.startswith(("os.", "open", "shutil.", "ctypes.", "tempfile.")):
                events += 1
                if events == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            with staged_files(directory, replaces=["only_old.parquet"]) as stage:
                fill(stage, "new")
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_process_killed_at_any_step_leaves_all_the_old_files_or_all_the_new_ones(tmp_path):
    out = tmp_path / "out"
    old = {"only_old.parquet": "old"} | {name: f"old {name}" for name in NAMES}
    new = {name: f"new {name}" for name in NAMES}
    seen, number, killed = [], 0, True
    while killed:
        number += 1
        shutil.rmtree(out, ignore_errors=True)
        (out / "checkpoints").mkdir(parents=True)
        (out / "checkpoints" / "file").write_text("mine")
        for name, text in {"notes.txt": "mine", **old}.items():
            (out / name).write_text(text)
        killed = killed_at_event(number, out)
        found = content(out)
        assert found.pop("notes.txt") == "mine"
        assert found in (old, new), number
        seen.append(found == new)
        # Whatever was under way, the next one cleans up, and nobody's subdirectory is lost.
        with pytest.raises(RuntimeError), staged_files(out):
            raise RuntimeError
        assert content(out / "checkpoints") == {"file": "mine"}, number
        assert [path.name for path in tmp_path.iterdir()] == ["out"], number
    assert number > 10
    assert seen[0] is False
    assert seen[-1] is True
