"""Search an index on disk with BM25 (k1 1.2, b 0.75) over the words of a query, any of which may match.

Layout: ``DIR/index`` holds tantivy's files, ``DIR/manifest.json`` describes them. `index_builder` writes both.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_trgrpo.common.files import read_json, settle_directory

# Increased when the schema or the analysis changes, so that old indexes cannot be searched with new code.
FORMAT = 1

MANIFEST = "manifest.json"
FILES = "index"

# Longer runs of letters, in bytes, are not words that anybody searches for.
MAX_TERM_BYTES = 64

# Bounds on the work for one query: characters that are read, and different words that are searched for.
MAX_CHARACTERS = 1 << 14
MAX_TERMS = 128


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage that was found.

    Args:
        id: the passage's id in the corpus; empty if a foreign server gives none.
        contents: the passage as in the corpus; in wiki-18 the quoted title, a line break, and the text.
        score: higher is better; comparable within one query only; 0 if a foreign server gives none.
    """

    id: str
    contents: str
    score: float


class Index:
    """An open index. Its files are memory-mapped, so processes share them; threads may search at the same time.

    A query is a bag of words. There is no query language (a colon, quotes or OR mean nothing), so no query is an error.
    """

    def __init__(self, directory: Path) -> None:
        """Open the index in `directory`.

        Raises:
            ValueError: `directory` is not an index, has another format, or is damaged.
        """
        manifest = check_complete(directory)
        try:
            self._schema, self._searcher = _open(directory / FILES, manifest["files"])
        except ValueError as error:
            raise ValueError(f"{directory} cannot be opened ({error}); build the index again") from error
        self.documents: int = self._searcher.num_docs
        self._analyzer, self._content_analyzer = analyzer(), analyzer(drop_stop_words=True)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return at most `topk` (at least 1) hits for each query, best first; a query without words has none.

        Raises:
            RuntimeError: tantivy failed; never because of the query.
        """
        try:
            return [self._search(query, topk) for query in queries]
        except BaseException as error:
            # A panic of tantivy, on damaged files for example, is not an Exception.
            if type(error).__name__ != "PanicException":
                raise
            raise RuntimeError(f"tantivy failed: {error}") from error

    def _search(self, query: str, topk: int) -> list[Hit]:
        from tantivy import Occur, Query

        terms = self._terms(query)
        if not terms:
            return []
        clauses = []
        for term, count in terms.items():
            clause = Query.term_query(self._schema, "contents", term, "freq")
            clauses.append((Occur.Should, clause if count == 1 else Query.boost_query(clause, float(count))))
        # Without the count tantivy may skip documents that cannot reach the top.
        found = self._searcher.search(Query.boolean_query(clauses), min(topk, self.documents), count=False)
        documents = [(score, self._searcher.doc(address)) for score, address in found.hits]
        return [Hit(doc.get_first("id").decode(), doc.get_first("contents"), score) for score, doc in documents]

    def _terms(self, query: str) -> dict[str, int]:
        """Return the words to search for and how often each is in the query."""
        text = as_unicode(query[:MAX_CHARACTERS])
        counts = Counter(self._content_analyzer.analyze(text) or self._analyzer.analyze(text))
        return dict(list(counts.items())[:MAX_TERMS])


def _open(directory: Path, names: Iterable[str]) -> tuple[Any, Any]:
    """Open tantivy's files `names` in `directory`; return the schema and the searcher.

    tantivy creates a lock file beside the files that it opens. A temporary directory of links to the files takes it, so the
    index may be on a read-only disk; once all files are mapped the links are not needed.
    """
    import tantivy

    # A thread of tantivy may take the lock once more while the links are removed.
    with tempfile.TemporaryDirectory(prefix="verl-trgrpo-index-", ignore_cleanup_errors=True) as links:
        for name in names:
            Path(links, name).symlink_to((directory / name).resolve())
        index = tantivy.Index.open(links)
        index.config_reader("manual")
        return index.schema, index.searcher()


def analyzer(drop_stop_words: bool = False) -> Any:
    """Build the text analysis: words in lower case, without accents, stemmed as English.

    The index keeps stop words, so that a query of nothing else ("The Who") finds something; other queries drop them.
    """
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.remove_long(MAX_TERM_BYTES))
    builder = builder.filter(Filter.lowercase())
    if drop_stop_words:
        builder = builder.filter(Filter.stopword("english"))
    return builder.filter(Filter.ascii_fold()).filter(Filter.stemmer("english")).build()


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """Return the manifest of an index, or None if there is none. A replacement that was killed is undone."""
    settle_directory(directory)
    manifest = read_json(directory / MANIFEST)
    return manifest if "format" in manifest and isinstance(manifest.get("files"), dict) else None


def check_complete(directory: Path) -> dict[str, Any]:
    """Check that `directory` is a complete index of this format and return its manifest.

    Raises:
        ValueError: `directory` is not an index, has another format, or is damaged.
    """
    manifest = read_manifest(directory)
    if manifest is None:
        raise ValueError(f"{directory} is not a finished index; build one with verl-trgrpo search index")
    if manifest["format"] != FORMAT:
        raise ValueError(f"{directory} has format {manifest['format']}, this version reads {FORMAT}; build it again")
    for name, size in manifest["files"].items():
        path = directory / FILES / name
        if Path(name).name != name:  # links of that name would lie elsewhere, see `_open`
            raise ValueError(f"{directory / MANIFEST} names {name!r}, which is no file of an index; build it again")
        if not path.is_file() or path.stat().st_size != size:
            raise ValueError(f"{path} is missing or not {size} bytes long; the index is damaged, build it again")
    return manifest


def as_unicode(text: str) -> str:
    """Replace lone surrogates, which a JSON string can contain but UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")
