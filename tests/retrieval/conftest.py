"""A small corpus and its index."""

from pathlib import Path

import pytest

from tests.retrieval.servers import PASSAGES, Gate, write_corpus
from verl_trgrpo.retrieval import TOKEN_VARIABLE
from verl_trgrpo.retrieval.index import IndexOptions, build_index


@pytest.fixture(scope="session")
def small_index(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("search")
    corpus = write_corpus(directory / "corpus.jsonl", PASSAGES)
    build_index(IndexOptions(corpus, directory / "index"))
    return directory / "index"


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.fixture
def gate(tmp_path):
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.open()
