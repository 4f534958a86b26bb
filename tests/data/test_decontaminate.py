"""The clean file is the rest of the train rows; refusals, failures and stops destroy nothing."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.contaminated_files import pairs, texts, write
from verl_trgrpo.data.decontaminate import (
    ContaminationOptions,
    find_contamination,
    manifest_path,
    render,
    write_clean,
)
from verl_trgrpo.data.parquet import file_sha256


def no_key(row):
    return None


def clean(options):
    return write_clean(find_contamination(options, no_key), options)


@pytest.fixture
def dirty(tmp_path):
    """Options: rows 1 and 4 of 2,500 train rows are in the test file."""
    train, test = texts(2500, words=15), texts(5, words=15, seed=1)
    train[1], train[4] = test[2], test[0]
    paths = write(tmp_path / "train.parquet", train), (write(tmp_path / "test.parquet", test, split="test"),)
    return ContaminationOptions(*paths, out=tmp_path / "clean.parquet")


def test_the_clean_file_has_the_other_rows_as_they_were(tmp_path, dirty):
    found = find_contamination(dirty, no_key)
    manifest = write_clean(found, dirty)
    before, after = (pq.read_table(path) for path in (dirty.train, dirty.out))
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after.to_pylist() == [r for i, r in enumerate(before.to_pylist()) if i not in (1, 4)]
    assert manifest == json.loads(manifest_path(dirty.out).read_text())
    assert (manifest["rows_read"], manifest["rows_kept"]) == (2500, 2498)
    assert manifest["train"] == {"file": "train.parquet", "sha256": file_sha256(dirty.train)}
    assert manifest["against"] == [{"file": "test.parquet", "sha256": file_sha256(dirty.against[0])}]
    assert manifest["parameters"] == {"ngram": 13, "threshold": 0.8}
    assert manifest["output"] == {"clean.parquet": file_sha256(dirty.out)}
    assert [(d["train_row"], d["test_file"], d["test_row"], d["reason"]) for d in manifest["dropped"]] == pairs(found)
    assert str(tmp_path) not in manifest_path(dirty.out).read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "clean.manifest.json", "clean.parquet", "test.parquet", "train.parquet",
    ]  # fmt: skip
    assert find_contamination(ContaminationOptions(dirty.out, dirty.against), no_key).matches == ()


def test_the_same_input_gives_the_same_bytes_and_replaces_its_own_output(dirty):
    clean(dirty)
    first = dirty.out.read_bytes(), manifest_path(dirty.out).read_bytes()
    clean(replace(dirty))
    assert (dirty.out.read_bytes(), manifest_path(dirty.out).read_bytes()) == first


def test_a_file_without_extra_info_is_cleaned_too(tmp_path):
    contents = texts(4)
    prompts = [[{"role": "user", "content": content}] for content in contents]
    pq.write_table(pa.table({"prompt": prompts, "more": [1.5, 2.5, 3.5, 4.5]}), tmp_path / "train.parquet")
    test = write(tmp_path / "test.parquet", contents[2:3])
    clean(ContaminationOptions(tmp_path / "train.parquet", (test,), out=tmp_path / "clean.parquet"))
    assert pq.read_table(tmp_path / "clean.parquet")["more"].to_pylist() == [1.5, 2.5, 4.5]


def test_outputs_that_would_destroy_something_are_refused(tmp_path, dirty):
    foreign = write(tmp_path / "foreign.parquet", ["precious"])
    refused = {
        dirty.train: "one of the inputs",
        dirty.against[0]: "one of the inputs",
        foreign: "no manifest from here",
        tmp_path / "clean.csv": "name it .parquet",
        tmp_path / "nowhere" / "clean.parquet": "a directory that exists",
    }
    for out, reason in refused.items():
        with pytest.raises(ValueError, match=reason):
            replace(dirty, out=out)
    clean(replace(dirty, out=foreign, force=True))
    assert pq.read_table(foreign).num_rows == 2498


def test_a_train_file_that_is_all_test_is_refused(tmp_path):
    train, test = write(tmp_path / "train.parquet", texts(3)), write(tmp_path / "test.parquet", texts(3))
    with pytest.raises(ValueError, match="nothing would be left"):
        clean(ContaminationOptions(train, (test,), out=tmp_path / "clean.parquet"))
    assert not (tmp_path / "clean.parquet").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path, dirty):
    clean(dirty)
    found = find_contamination(dirty, no_key)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    content = dirty.train.read_bytes()
    dirty.train.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"cannot write .*clean\.parquet"):
        write_clean(found, dirty)
    dirty.train.write_bytes(content)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


STOPPED = """
import multiprocessing.synchronize, os, sys, traceback
import pandas, pyarrow.parquet  # now, not in every child
from verl_trgrpo.cli.main import main
from verl_trgrpo.common import options
from verl_trgrpo.data import command, decontaminate
from verl_trgrpo.tasks.knights_and_knaves import logic
import tyro

number, *words = sys.argv[1:]
here = os.getcwd()

def run(stop_at):
    steps = 0

    def step(event, arguments):
        # Whatever opens, renames or removes a file here, just before it does.
        nonlocal steps
        if arguments and isinstance(arguments[0], (str, os.PathLike)):
            if event.startswith(("open", "os.", "shutil.", "tempfile.")) and here in os.path.abspath(arguments[0]):
                steps += 1
                if steps == stop_at:
                    os.kill(os.getpid(), int(number))

    sys.addaudithook(step)
    code = main(words)
    print(f"{steps} steps", file=sys.stderr)
    return code

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sys.stdout = sys.stderr = open(os.path.join(here, "stderr"), "w")
            code = run(int(line))
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_stop_at_any_step_leaves_the_old_file_or_the_new_one(tmp_path, stop):
    """Real processes, each stopped before another of the command's steps in the file system."""
    train, test = texts(50, words=20), texts(5, words=20, seed=1)
    out = tmp_path / "clean.parquet"
    old = write(out, ["old"]).read_bytes()
    write(tmp_path / "train.parquet", [*train, test[0]])
    write(tmp_path / "test.parquet", test)
    words = ["data", "decontaminate", "train.parquet", "--against", "test.parquet", "--out", "clean.parquet", "--force"]
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(int(stop)), *words], cwd=tmp_path, text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as runner:  # fmt: skip

        def run(stop_at):
            manifest_path(out).unlink(missing_ok=True)
            out.write_bytes(old)
            runner.stdin.write(f"{stop_at}\n")
            runner.stdin.flush()
            return int(runner.stdout.readline()), (tmp_path / "stderr").read_text()

        code, error = run(0)
        assert code == 0, error
        new, steps = out.read_bytes(), int(re.search(r"(\d+) steps", error)[1])
        assert new != old and steps > 10
        found = set()
        for stop_at in range(1, steps + 1):
            code, error = run(stop_at)
            assert code == (130 if stop == signal.SIGINT else -stop), error
            content = out.read_bytes()
            assert content in (old, new)
            found.add(content)
            if manifest_path(out).exists():
                recorded = json.loads(manifest_path(out).read_text())["output"]
                assert recorded == {out.name: file_sha256(out)}
            if stop == signal.SIGINT:
                assert "interrupted; nothing was changed" in error and "Traceback" not in error
                assert not list(tmp_path.glob(".clean*")), "an interrupt cleans up"
        assert found == {old, new}


def test_the_result_as_text_names_rows_and_files(dirty):
    found = find_contamination(dirty, no_key)
    text = render(found, None)
    assert "2 of 2500 train rows contaminated; 2 equal prompt" in text
    assert "test.parquet: 2 of 5 rows in the train file" in text
    assert re.search(r"train row 1: equal prompt, test\.parquet row 2", text)
    assert "--out" in text
    assert "2498 rows; dropped rows are in clean.manifest.json" in render(found, Path("clean.parquet"))
