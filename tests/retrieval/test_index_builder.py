"""Building an index: reading a corpus file, and complete or not there."""

import gzip
import json
import os
from pathlib import Path

import pytest

from tests.data.test_write import data_set, row
from tests.retrieval.servers import PASSAGES, write_corpus
from tests.waiting import wait_for
from verl_trgrpo.data.rows import arrow_schema
from verl_trgrpo.retrieval.index import Index, IndexOptions, build_index, check_complete, read_corpus

GOOD = [
    ({"id": "0", "contents": '"Title"\ntext'}, ("0", '"Title"\ntext')),
    ({"id": 17, "contents": "a number as id"}, ("17", "a number as id")),
    ({"id": "ü", "contents": '"東京 🗼"\nUnicode', "more": [1]}, ("ü", '"東京 🗼"\nUnicode')),
]

BAD = {
    "cut off": b'{"id": "1", "contents": "te',
    "a list": b'["1", "text"]',
    "no id": b'{"contents": "text"}',
    "null": b'{"id": "1", "contents": null}',
    "only spaces": b'{"id": "1", "contents": " "}',
    "id true": b'{"id": true, "contents": "text"}',
    "half a surrogate pair": b'{"id": "1", "contents": "\\ud83d"}',
}


def write(path, lines):
    path.write_bytes(b"\n".join(lines))
    return path


def test_passages_come_in_order_and_empty_lines_are_skipped(tmp_path):
    rows = [json.dumps(row, ensure_ascii=position == 1).encode() for position, (row, _) in enumerate(GOOD)]
    path = write(tmp_path / "corpus.jsonl", [rows[0], b"", b"  \r", *rows[1:]])
    assert list(read_corpus(path)) == [passage for _, passage in GOOD]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_an_error_with_its_number(tmp_path, name):
    good = json.dumps(GOOD[0][0]).encode()
    passages = read_corpus(write(tmp_path / "corpus.jsonl", [good, b"", BAD[name], good]))
    assert next(passages) == GOOD[0][1]
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 3: "):
        next(passages)


def test_gzip_of_several_members(tmp_path):
    lines = [json.dumps({"id": str(i), "contents": f"text {i}"}).encode() for i in range(1000)]
    # Two members in one file, as parallel compressors write them.
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(lines[:500]) + b"\n") + gzip.compress(b"\n".join(lines[500:])))
    assert [identity for identity, _ in read_corpus(path)] == [str(i) for i in range(1000)]


def ids(index, query):
    return [hit.id for hit in index.search([query], 3)[0]]


def visible(directory):
    return sorted(path.name for path in directory.iterdir() if not path.name.endswith(".lock"))


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus.jsonl", PASSAGES)


def test_the_manifest_describes_the_index(tmp_path, corpus):
    manifest = build_index(IndexOptions(corpus, tmp_path / "out"))
    assert (
        manifest
        == check_complete(tmp_path / "out").content()
        == json.loads((tmp_path / "out" / "manifest.json").read_text())
    )
    assert manifest["documents"] == 5
    assert {path.name for path in (tmp_path / "out" / "index").iterdir()} == set(manifest["files"])
    assert visible(tmp_path) == ["corpus.jsonl", "out"]


def test_an_existing_index_is_replaced_by_force_only(tmp_path, corpus):
    out = tmp_path / "out"
    build_index(IndexOptions(corpus, out))
    open_index = Index(out)
    write_corpus(corpus, {"9": "another text"})
    with pytest.raises(ValueError, match="--force"):
        IndexOptions(corpus, out)
    assert ids(Index(out), "polonium") == ["1", "0"]
    build_index(IndexOptions(corpus, out, force=True))
    assert ids(Index(out), "polonium") == []
    assert ids(Index(out), "another") == ["9"]
    # A process that has the old index open goes on with it.
    assert ids(open_index, "polonium") == ["1", "0"]


@pytest.mark.parametrize("lines", ["\n\n", "not a passage\n"])
def test_a_corpus_without_passages_leaves_nothing(tmp_path, lines):
    (tmp_path / "corpus.jsonl").write_text(lines)
    with pytest.raises(ValueError, match=r"corpus\.jsonl") as caught:
        build_index(IndexOptions(tmp_path / "corpus.jsonl", tmp_path / "out"))
    assert visible(tmp_path) == ["corpus.jsonl"]
    # A thread that still wrote would make the removal of the directory fail now and then. The error is kept until here, for it
    # holds what the failed build did not end itself.
    wait_for(lambda: not writing_threads())
    assert caught.value


def writing_threads():
    """Return the names, which Linux cuts after 15 characters, of this process's threads that write an index."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if name.startswith(("thrd-tantivy", "segment_updater", "merge_thread"))]


def test_wrong_options_are_all_reported_at_once(tmp_path, corpus):
    with pytest.raises(ValueError, match="2 problems") as caught:
        IndexOptions(tmp_path / "nowhere", corpus)
    assert all(word in str(caught.value) for word in ("nowhere is not a file", f"out={corpus}"))


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_with_other_files_is_never_replaced(tmp_path, corpus, force):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="not an index"):
        IndexOptions(corpus, out, force=force)
    assert (out / "thesis.tex").read_text() == "precious"


def test_an_unfinished_foreign_or_damaged_index_is_refused(tmp_path, corpus):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="not a finished index"):
        Index(tmp_path)
    manifest = build_index(IndexOptions(corpus, out))
    (out / "manifest.json").write_text(json.dumps(manifest | {"format": 0}))
    with pytest.raises(ValueError, match="format 0"):
        Index(out)
    (out / "manifest.json").write_text(json.dumps(manifest))
    store = next((out / "index").glob("*.store"))
    os.truncate(store, store.stat().st_size - 1)
    with pytest.raises(ValueError, match="damaged"):
        Index(out)


def test_a_data_set_and_an_index_are_not_taken_for_each_other(tmp_path, corpus):
    build_index(IndexOptions(corpus, tmp_path / "index"))
    data_set(tmp_path / "data").write({"train": [row()]}, arrow_schema())
    with pytest.raises(ValueError, match="not written by x"):
        data_set(tmp_path / "index").is_there()
    with pytest.raises(ValueError, match="not an index"):
        IndexOptions(corpus, tmp_path / "data", force=True)
