"""Responses on disk survive a kill and are never mixed with those of another evaluation."""

import os
import signal
import subprocess
import sys

import pytest

from verl_trgrpo.evaluation.response_store import Response, open_store


def response(row, sample, text="text"):
    return Response(row, sample, text, tokens=3, cut=False, extra={"model_text": ["täxt"]})


@pytest.fixture
def data(tmp_path):
    return [tmp_path / "kk" / "test.parquet", tmp_path / "math" / "test.parquet", tmp_path / "other.parquet"]


def test_what_is_appended_is_read_in_order_of_row_and_sample(tmp_path, data):
    with open_store(tmp_path / "out", {"k": 2}, data) as store:
        for row, sample in [(3, 1), (0, 0), (3, 0)]:
            store.append(1, response(row, sample, "a\nb\u2028c"))
        assert [(found.row, found.sample) for found in store.read(1)] == [(0, 0), (3, 0), (3, 1)]
        assert store.read(1)[0] == response(0, 0, "a\nb\u2028c")
        assert store.read(0) == store.read(2) == []


def test_a_line_cut_short_by_a_kill_is_dropped_and_the_file_goes_on(tmp_path, data):
    with open_store(tmp_path / "out", {}, data) as store:
        store.append(0, response(0, 0))
        path = store.path(0)
    path.write_bytes(path.read_bytes() + b'{"row": 1, "sample": 0, "te')
    with open_store(tmp_path / "out", {}, data) as store:
        assert store.read(0) == [response(0, 0)]
        store.append(0, response(1, 0))
        assert store.read(0) == [response(0, 0), response(1, 0)]


def test_a_damaged_line_costs_that_line_and_a_huge_one_the_file(tmp_path, data, caplog):
    with open_store(tmp_path / "out", {}, data) as store:
        store.append(0, response(0, 0))
        path = store.path(0)
        with path.open("a") as file:
            file.write("nonsense\n" * 9)
        store.append(0, response(1, 0))
    with open_store(tmp_path / "out", {}, data) as store:
        assert store.read(0) == [response(0, 0), response(1, 0)]
    assert "line 2, is damaged" in caplog.text and "as 8 more" in caplog.text and len(caplog.records) == 1
    os.truncate(path, 20 << 30)
    with pytest.raises(ValueError, match="ends in a line of more than"), open_store(tmp_path / "out", {}, data):
        pass
    assert path.stat().st_size == 20 << 30


def test_responses_of_a_killed_process_are_there(tmp_path):
    code = f"""
import signal
from pathlib import Path
from verl_trgrpo.evaluation.response_store import Response, open_store
with open_store(Path({str(tmp_path / "out")!r}), {{}}, [Path("a.parquet")]) as store:
    for row in range(100):
        store.append(0, Response(row, 0, "x" * 1000, 1, False))
    print("written", flush=True)
    signal.pause()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "written\n"
    with (
        pytest.raises(ValueError, match="in use by another evaluation"),
        open_store(tmp_path / "out", {}, [tmp_path / "a.parquet"]),
    ):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with open_store(tmp_path / "out", {}, [tmp_path / "a.parquet"]) as store:
        assert [found.row for found in store.read(0)] == [*range(100)]


def test_other_arguments_are_refused_and_named(tmp_path, data):
    with open_store(tmp_path / "out", {"k": 2, "temperature": 1.0}, data):
        pass
    other = open_store(tmp_path / "out", {"k": 2, "temperature": 0.6}, data)
    with pytest.raises(ValueError, match=r"temperature was 1\.0, now 0\.6.*another --out") as caught, other:
        pass
    assert "k was" not in str(caught.value)
    with open_store(tmp_path / "out", {"k": 2, "temperature": 1.0}, data):
        pass  # the refusal let go of the lock
