"""Files and directories that appear whole, and locks."""

import itertools
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.data.test_write import data_set, row
from tests.retrieval.servers import write_corpus
from verl_trgrpo.common.files import (
    BusyError,
    lock,
    settle_directory,
    staged_directory,
    write_json,
    write_text,
)
from verl_trgrpo.data.rows import arrow_schema
from verl_trgrpo.retrieval.index import Index, IndexOptions, _owned, build_index

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


def linked_pipe(path):
    (path.parent / "pipe").mkdir()
    os.mkfifo(path.parent / "pipe" / "b")
    path.symlink_to("pipe/b")


@pytest.mark.parametrize("make", [os.mkfifo, linked_pipe, os.mkdir])
def test_what_is_no_file_and_no_directory_stays_in_its_place(tmp_path, make):
    """Renaming would take a pipe, or as root a device such as /dev/null, from all others; --out /dev/null is easily typed."""
    place = tmp_path / "a"
    make(place)
    before = place.stat()
    with pytest.raises(ValueError, match="a device, a pipe or a directory"):
        write_text(place, "text")
    if not place.is_dir():
        with pytest.raises(ValueError, match="is not a directory"), staged_directory(place):
            pass
    after = place.stat()
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    assert not [path for path in tmp_path.rglob("*") if path.name not in ("a", "b", "pipe")]


def test_json_is_readable_and_reads_as_it_was_written(tmp_path):
    write_json(tmp_path / "a", {"é": [1, None]})
    assert json.loads((tmp_path / "a").read_bytes()) == {"é": [1, None]}
    write_json(tmp_path / "a", ["\ud800 é"])
    assert json.loads((tmp_path / "a").read_bytes()) == ["\ud800 é"]
    write_json(tmp_path / "a", {"é": tmp_path}, default=str)
    assert (tmp_path / "a").read_text(encoding="utf-8") == f'{{\n  "é": "{tmp_path}"\n}}\n'


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


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to(path.parent)])
def test_what_another_left_beside_a_directory_stays(tmp_path, make):
    beside = tmp_path / ".out.building"
    make(beside)
    if not beside.is_symlink() and beside.is_dir():
        (beside / "letters.txt").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match="move this"), staged_directory(tmp_path / "out"):
        pytest.fail("the block must not run")
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != ".out.lock"] == before


@pytest.mark.parametrize("text", [b"my notes", b"\xff\xfe", b"12 13"])
def test_a_lock_with_a_text_of_somebody_is_refused(tmp_path, text):
    (tmp_path / "lock").write_bytes(text)
    with pytest.raises(ValueError, match="move this"), lock(tmp_path / "lock", ""):
        pytest.fail("the block must not run")
    assert (tmp_path / "lock").read_bytes() == text


def test_a_directory_that_is_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "out").symlink_to("out")
    with pytest.raises(ValueError, match="leads to itself; remove the link"), staged_directory(tmp_path / "out"):
        pytest.fail("the block must not run")


def test_a_lock_is_held_by_one_and_free_after_it(tmp_path):
    for _ in range(2):
        with lock(tmp_path / "lock", "busy") as descriptor:
            assert os.pread(descriptor, 64, 0).decode() == str(os.getpid())
            with pytest.raises(BusyError, match=f"held by {os.getpid()}"), lock(tmp_path / "lock", "held by {holder}"):
                pytest.fail("the block must not run")


CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod"}
WRITING = os.O_WRONLY | os.O_RDWR


def died(work, number):
    """Whether a child process that ends at its change `number` of the file system, from 0, got there."""
    pid = os.fork()
    if pid == 0:
        left = number

        def end(event, arguments):
            nonlocal left
            if event in CHANGES or (event == "open" and arguments[2] & WRITING):
                left -= 1
                if left < 0:
                    os._exit(9)

        sys.addaudithook(end)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 9)
    return code == 9


def write_data(out, version):
    """A data set whose files depend on the version; the old one has a file that the new one does not have."""
    asked = data_set(out, seed=version, force=True)
    asked.is_there()
    names = ("train", "test", "other") if version == 0 else ("train", "test")
    asked.write({name: [row(f"{version}")] for name in names}, arrow_schema())


def version_of_data(out):
    version = json.loads((out / "manifest.json").read_text())["arguments"]["seed"]
    return (
        version
        if data_set(out, seed=version).is_there() and (out / "other.parquet").exists() == (version == 0)
        else None
    )


def write_index(out, version):
    out.parent.mkdir(exist_ok=True)
    corpus = write_corpus(out.with_name("corpus.jsonl"), {f"{version}": f"passage {version}"})
    build_index(IndexOptions(corpus, out, force=True))


def version_of_index(out):
    return int(Index(out).search(["passage"], 1)[0][0].id)


@pytest.mark.parametrize(
    ("write", "version_of", "owned_of"),
    [
        (write_data, version_of_data, lambda out: data_set(out)._owned),
        (write_index, version_of_index, lambda _: _owned),
    ],
)
def test_a_process_that_is_killed_leaves_the_old_or_the_new_and_the_next_call_ends_it(
    tmp_path, write, version_of, owned_of
):
    write(tmp_path / "before" / "out", 0)
    (tmp_path / "before" / "out" / "notes.txt").write_text("mine")
    states = []
    for number in itertools.count():
        out = tmp_path / f"{number}" / "out"
        shutil.copytree(tmp_path / "before" / "out", out)
        was_killed = died(lambda out=out: write(out, 1), number)
        settle_directory(out, owned_of(out))
        states.append(version_of(out))
        write(out, 1)
        assert version_of(out) == 1 and (out / "notes.txt").read_text() == "mine"
        assert {path.name for path in out.parent.iterdir()} <= {"out", ".out.lock", "corpus.jsonl"}
        if not was_killed:
            break
    assert (
        states == sorted(states) and states.count(0) > 5 and states.count(1) > 3
    )  # 0 until the renames, 1 from then on


def planted_directory(files, of=None):
    def plant(old):
        old.mkdir()
        for name, content in files.items():
            (old / name).write_text(content)
        (old / "link").symlink_to(old.parent / "home")
        if of is not None:
            os.chown(old, of, -1)

    return plant


def manifest(**changes):
    return json.dumps({"builder": "somebody else's", "files": {"train.parquet": {"sha256": "0"}}} | changes)


def untouched(path):
    """Gives what a change of a file or of a directory's entries changes; reading changes the time of access alone."""
    within = path.iterdir() if path.is_dir() and not path.is_symlink() else ()
    facts = {entry: entry.lstat() for entry in (path, *within)}
    return {
        entry: (fact.st_ino, fact.st_mode, fact.st_uid, fact.st_size, fact.st_mtime_ns) for entry, fact in facts.items()
    }


# What somebody may put beside the directory that a user names with --out.
PLANTED = {
    "file": lambda old: old.write_text("x"),
    "pipe": os.mkfifo,
    "link to a directory": lambda old: old.symlink_to(old.parent / "home"),
    "link to nothing": lambda old: old.symlink_to(old.parent / "nothing"),
    "no manifest": planted_directory({"train.parquet": "x"}),
    "manifest of nothing": planted_directory({"manifest.json": "{}"}),
    "manifest of another type": planted_directory({"manifest.json": "[1]"}),
    "manifest of another builder": planted_directory({"manifest.json": manifest(), "train.parquet": "x"}),
    "manifest that lists others": planted_directory(
        {"manifest.json": manifest(files={"../home/diary": {"sha256": "0"}})}
    ),
    "manifest of an odd builder": planted_directory({"manifest.json": manifest(builder=["a"])}),
}
OF_OTHERS = {
    "own manifest, another user": planted_directory({"manifest.json": manifest(builder="a builder")}, of=12345)
}


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("name", [*PLANTED, *OF_OTHERS])
def test_what_somebody_planted_beside_the_directory_is_named_and_stays(tmp_path, name, there):
    if name in OF_OTHERS and os.geteuid():
        pytest.skip("only root can give a file away")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "diary").write_text("mine")
    out, old = tmp_path / "out", tmp_path / ".out.old"
    if there:
        data_set(out, builder="a builder").write({"train": [row("1")]}, arrow_schema())
    (PLANTED | OF_OTHERS)[name](old)
    before = untouched(old)
    asked = data_set(out, seed=5, force=True, builder="a builder")
    for attempt in (asked.is_there, lambda: asked.write({"train": [row("2")]}, arrow_schema())):
        with pytest.raises(ValueError, match=r"\.out\.old was not left by an earlier build .* move this"):
            attempt()
    settle_directory(out, asked._owned)
    assert untouched(old) == before
    assert content(tmp_path / "home") == {"diary": "mine"} and out.exists() == there
    old.rename(tmp_path / "away")
    asked.write({"train": [row("2")]}, arrow_schema())
    assert {path.name for path in out.iterdir()} == {"train.parquet", "manifest.json"}


def test_a_temporary_file_has_a_name_that_nobody_can_foresee(tmp_path):
    """Another user of the directory can plant no link in its place."""
    from verl_trgrpo.common.files import replaced_file

    names = set()
    for _ in range(3):
        with replaced_file(tmp_path / "a") as temporary:
            names.add(temporary.name)
            assert temporary.is_file() and not temporary.is_symlink()
            temporary.write_text("x")
    assert len(names) == 3 and content(tmp_path) == {"a": "x"}
