"""Building an index: complete or not there."""

import json
import os

import pytest

from tests.retrieval.servers import PASSAGES, write_corpus
from verl_trgrpo.retrieval.build import IndexOptions, build_index
from verl_trgrpo.retrieval.index import Index, check_complete


def search(directory, query, topk=3):
    return Index(directory).search([query], topk)[0]


def visible(directory):
    return sorted(path.name for path in directory.iterdir() if not path.name.endswith(".lock"))


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus.jsonl", PASSAGES)


def test_the_manifest_says_what_the_index_holds(tmp_path, corpus):
    manifest = build_index(IndexOptions(corpus, tmp_path / "out"))
    assert manifest == check_complete(tmp_path / "out") == json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["documents"] == 5
    assert {path.name for path in (tmp_path / "out" / "index").iterdir()} == set(manifest["files"])
    assert visible(tmp_path) == ["corpus.jsonl", "out"]


def test_an_index_that_is_there_is_replaced_by_force_only(tmp_path, corpus):
    out = tmp_path / "out"
    build_index(IndexOptions(corpus, out))
    open_index = Index(out)
    write_corpus(corpus, {"9": "another text"})
    with pytest.raises(ValueError, match=r"holds an index; .* --force"):
        IndexOptions(corpus, out)
    assert [hit.id for hit in search(out, "polonium")] == ["1", "0"]
    build_index(IndexOptions(corpus, out, force=True))
    assert search(out, "polonium") == []
    assert [hit.id for hit in search(out, "another")] == ["9"]
    # Who has the old index open goes on with it.
    assert [hit.id for hit in open_index.search(["polonium"], 3)[0]] == ["1", "0"]


@pytest.mark.parametrize("lines", ["", "\n\n", "no passage\n"])
def test_a_corpus_without_passages_leaves_nothing(tmp_path, lines):
    (tmp_path / "corpus.jsonl").write_text(lines)
    with pytest.raises(ValueError, match=r"has no passages|line 1: it is not JSON"):
        build_index(IndexOptions(tmp_path / "corpus.jsonl", tmp_path / "out"))
    assert visible(tmp_path) == ["corpus.jsonl"]


def test_wrong_options_are_all_reported_at_once(tmp_path, corpus):
    with pytest.raises(ValueError, match="3 problems") as caught:
        IndexOptions(tmp_path / "nowhere", corpus, threads=0)
    assert all(word in str(caught.value) for word in ("nowhere is not a file", "threads is 0", "is not a directory"))


def test_a_directory_with_other_files_is_never_replaced(tmp_path, corpus):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("precious")
    for force in (False, True):
        with pytest.raises(ValueError, match="no index from here"):
            IndexOptions(corpus, out, force=force)
    assert (out / "thesis.tex").read_text() == "precious"


def test_what_is_not_a_finished_index_is_refused(tmp_path, corpus):
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
