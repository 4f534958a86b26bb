"""Search in a tantivy index: BM25 (k1 1.2, b 0.75) over the words of a query, any of which may match."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_trgrpo.retrieval.backend import BackendError, Hit, as_unicode, optional_module
from verl_trgrpo.retrieval.tantivy_index import FILES, analyzer, check_complete

# Bounds on the work for one query, whoever calls: characters that are read, and different words that are looked up.
MAX_CHARACTERS = 1 << 14
MAX_TERMS = 128


@dataclass(frozen=True)
class TantivyOptions:
    """An index from `verl-trgrpo search index`.

    Raises ValueError where `index` is not a finished index of this format.
    """

    index: Path

    def __post_init__(self) -> None:
        check_complete(self.index)

    def open(self) -> TantivyBackend:
        return TantivyBackend(self.index)


class TantivyBackend:
    """The `Backend` of an index on this machine; its files are memory-mapped, so processes share them.

    A query is a bag of words. There is no query language: a colon, quotes or OR mean nothing, so no query is an error.
    """

    name = "tantivy"
    batch_size = 8

    def __init__(self, directory: Path) -> None:
        manifest = check_complete(directory)
        self._tantivy = optional_module("tantivy")
        try:
            self._schema, self._searcher = self._open(directory / FILES, manifest["files"])
        except ValueError as error:
            raise ValueError(f"{directory} cannot be opened ({error}); build the index again") from error
        if self._searcher.num_docs != manifest["documents"]:
            raise ValueError(
                f"{directory} has {self._searcher.num_docs} documents, its manifest says {manifest['documents']}; "
                "build the index again"
            )
        self._analyzer, self._content_analyzer = analyzer(), analyzer(drop_stop_words=True)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        if topk < 1:
            raise ValueError(f"topk is {topk}; ask for at least 1 hit")
        try:
            return [self._search(query, topk) for query in queries]
        except BaseException as error:
            # A panic of tantivy, on damaged files for example, is not an Exception and would end the server.
            if type(error).__name__ != "PanicException":
                raise
            raise BackendError(f"tantivy failed: {error}") from error

    def describe(self) -> dict[str, Any]:
        return {"documents": self._searcher.num_docs, "segments": self._searcher.num_segments}

    def close(self) -> None:
        """Nothing to give back before the object goes."""

    def _open(self, directory: Path, names: Iterable[str]) -> tuple[Any, Any]:
        """Return schema and searcher.

        tantivy creates a lock file beside the files that it opens. A directory of links lets it have one, so that the
        index may be on a read-only disk or belong to somebody else; once all files are mapped the links are not needed.
        """
        with tempfile.TemporaryDirectory(prefix="verl-trgrpo-index-") as links:
            for name in names:
                Path(links, name).symlink_to((directory / name).resolve())
            index = self._tantivy.Index.open(links)
            index.config_reader("manual")
            return index.schema, index.searcher()

    def _search(self, query: str, topk: int) -> list[Hit]:
        terms = self._terms(query)
        if not terms:
            return []
        build, occur = self._tantivy.Query, self._tantivy.Occur
        clauses = []
        for term, count in terms.items():
            clause = build.term_query(self._schema, "contents", term, "freq")
            clauses.append((occur.Should, clause if count == 1 else build.boost_query(clause, float(count))))
        # Without the count tantivy may skip documents that cannot reach the top.
        found = self._searcher.search(build.boolean_query(clauses), min(topk, self._searcher.num_docs), count=False)
        hits = []
        for score, address in found.hits:
            document = self._searcher.doc(address)
            hits.append(Hit(document.get_first("id").decode(), document.get_first("contents"), score))
        return hits

    def _terms(self, query: str) -> dict[str, int]:
        """Return the words to look up and how often the query has each."""
        text = as_unicode(query[:MAX_CHARACTERS])
        counts = Counter(self._content_analyzer.analyze(text) or self._analyzer.analyze(text))
        return dict(list(counts.items())[:MAX_TERMS])
