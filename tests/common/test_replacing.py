"""A data set or an index that is replaced is whole at every point: each change of the file system is a place to be killed."""

import itertools
import json
import os
import shutil
import sys

import pytest

from tests.data.test_write import data_set, row
from tests.retrieval.servers import write_corpus
from verl_trgrpo.common.files import settle_directory
from verl_trgrpo.data.rows import arrow_schema
from verl_trgrpo.retrieval.index import Index, IndexOptions, build_index

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


@pytest.mark.parametrize(("write", "version_of"), [(write_data, version_of_data), (write_index, version_of_index)])
def test_a_process_that_is_killed_leaves_the_old_or_the_new_and_the_next_call_ends_it(tmp_path, write, version_of):
    write(tmp_path / "before" / "out", 0)
    (tmp_path / "before" / "out" / "notes.txt").write_text("mine")
    states = []
    for number in itertools.count():
        out = tmp_path / f"{number}" / "out"
        shutil.copytree(tmp_path / "before" / "out", out)
        was_killed = died(lambda out=out: write(out, 1), number)
        settle_directory(out)
        states.append(version_of(out))
        write(out, 1)
        assert version_of(out) == 1 and (out / "notes.txt").read_text() == "mine"
        assert {path.name for path in out.parent.iterdir()} <= {"out", ".out.lock", "corpus.jsonl"}
        if not was_killed:
            break
    assert (
        states == sorted(states) and states.count(0) > 5 and states.count(1) > 3
    )  # 0 until the renames, 1 from then on
