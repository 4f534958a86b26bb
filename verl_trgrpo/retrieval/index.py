"""Build an index of passages on disk, and search it with BM25 (k1 1.2, b 0.75) over the words of a query, any of which may match.

Layout: ``DIR/index`` holds tantivy's files, ``DIR/manifest.json`` describes them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import Field

from verl_trgrpo import __version__
from verl_trgrpo.common.files import json_lines, settle_directory, staged_directory, write_json
from verl_trgrpo.common.foreign import ForeignFileError, is_entry, open_foreign
from verl_trgrpo.common.options import Options
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import shorten
from verl_trgrpo.common.typed import Schema, Text, Whole, read_typed

# Increased when the schema or the analysis changes, so that old indexes cannot be searched with new code.
FORMAT = 1

_MANIFEST = "manifest.json"
_FILES = "index"
_ANALYZER = "english"

# Memory of tantivy's writer; with less, more segments are written and merged.
_WRITER_BYTES = 512_000_000

# Longer runs of letters, in bytes, are not words that anybody searches for.
MAX_TERM_BYTES = 64

# Bounds on the work for one query: characters that are read, and different words that are searched for.
MAX_CHARACTERS = 1 << 14
MAX_TERMS = 128


class IndexManifest(Schema):
    """``manifest.json`` of an index: its format, and the size of each file in bytes."""

    format: int | None = None
    files: dict[Text, Whole] = Field(default_factory=dict)


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


class ChangedIndexError(RuntimeError):
    """Report that a file of an open index was written to: what it finds can be wrong."""


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
        # Open files, not paths: the index may be replaced by another one, and this one remains what it is.
        self._opened = {path: open_foreign(path) for path in (directory / _FILES / name for name in manifest.files)}
        self._noted = {path: _state(file) for path, file in self._opened.items()}
        try:
            self._schema, self._searcher = _open(directory / _FILES, manifest.files)
        except ValueError as error:
            raise ValueError(f"{directory} cannot be opened ({error}); build the index again") from error
        self.documents: int = self._searcher.num_docs
        self._analyzer, self._content_analyzer = analyzer(), analyzer(drop_stop_words=True)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return at most `topk` (at least 1) hits for each query, best first; a query without words has none.

        Raises:
            ChangedIndexError: a file of the index has changed since it was opened.
            RuntimeError: tantivy failed; never because of the query.
        """
        self._check_unchanged()
        try:
            return [self._search(query, topk) for query in queries]
        except BaseException as error:
            # A panic of tantivy, on damaged files for example, is not an Exception.
            if type(error).__name__ != "PanicException":
                raise
            raise RuntimeError(f"tantivy failed: {error}") from error
        finally:
            self._check_unchanged()

    def _check_unchanged(self) -> None:
        for path, file in self._opened.items():
            if _state(file) != self._noted[path]:
                raise ChangedIndexError(f"{path} has changed while the index was open; build the index again")

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


def _state(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


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


def read_manifest(directory: Path) -> IndexManifest | None:
    """Return the manifest of an index, or None if there is none. A replacement that was killed is undone.

    Raises:
        ForeignFileError: it is damaged.
    """
    settle_directory(directory, _owned)
    return _manifest(directory)


def _manifest(directory: Path) -> IndexManifest | None:
    manifest = read_typed(directory / _MANIFEST, IndexManifest, mark="format")
    return manifest if manifest.format is not None and manifest.files else None


def _owned(directory: Path) -> tuple[str, ...]:
    """Return the entries of an index in a directory."""
    with contextlib.suppress(ForeignFileError):
        return (_FILES, _MANIFEST) if _manifest(directory) else ()
    return ()


def check_complete(directory: Path) -> IndexManifest:
    """Check that `directory` is a complete index of this format and return its manifest.

    Raises:
        ValueError: `directory` is not an index, has another format, or is damaged.
    """
    manifest = read_manifest(directory)
    if manifest is None:
        raise ValueError(
            f"{directory} is not a finished index; build one with `verl-trgrpo search index --corpus FILE --out DIR`"
        )
    if manifest.format != FORMAT:
        raise ValueError(
            f"{directory} has format {shorten(manifest.format, 20)}, this version reads {FORMAT}; build the index again"
        )
    for name, size in manifest.files.items():
        path = directory / _FILES / name
        if Path(name).name != name:  # links of that name would lie elsewhere, see `_open`
            raise ValueError(
                f"{directory / _MANIFEST} names {name!r}, which is not a file of an index; build the index again"
            )
        if not is_entry(path) or path.stat().st_size != size:
            raise ValueError(f"{path} is missing or not {size} bytes long; the index is damaged, build the index again")
    return manifest


def as_unicode(text: str) -> str:
    """Replace lone surrogates, which a JSON string can contain but UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


# --- Building --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IndexOptions(Options):
    """Build an index of a corpus of passages.

    Each line of the corpus is {"id": "7", "contents": "\\"Title\\"\\ntext"}; any other line stops the build.
    The index appears when it is complete; after an interruption the same command starts over.

    Args:
        corpus: File of JSON lines, plain or gzip.
        out: Directory for the index.
        force: Replace an existing index.
    """

    corpus: Path
    out: Path
    force: bool = False

    def problems(self) -> list[str]:
        """Return a message for each problem of corpus and directory."""
        messages = []
        if not self.corpus.is_file():
            messages.append(f"corpus={self.corpus} is not a file; check the path")
        if self.out.exists() and not self.out.is_dir():
            return [*messages, f"out={self.out} is not a directory; choose another"]
        try:
            found = read_manifest(self.out)
        except ForeignFileError as error:
            return [*messages, str(error)]
        if found is None and self.out.is_dir() and any(self.out.iterdir()):
            messages.append(f"out={self.out} holds files that are not an index; choose another directory")
        elif found is not None and not self.force:
            messages.append(
                f"out={self.out} holds an index; choose another directory, or replace the index with --force"
            )
        return messages


def build_index(options: IndexOptions, progress: Progress = no_progress) -> dict[str, Any]:
    """Build the index of a corpus and return its manifest.

    Raises:
        ValueError: the corpus is damaged or has no passages, or the directory cannot be written.
    """
    status = options.corpus.stat()
    with staged_directory(options.out, _owned) as stage:
        documents = _write(stage / _FILES, options, progress)
        manifest = {
            "format": FORMAT,
            "package_version": __version__,
            "library_versions": {"tantivy": version("tantivy")},
            "corpus": {"name": options.corpus.name, "bytes": status.st_size, "modified_ns": status.st_mtime_ns},
            "documents": documents,
            "files": {path.name: path.stat().st_size for path in sorted((stage / _FILES).iterdir())},
        }
        write_json(stage / _MANIFEST, manifest)
    return manifest


def _write(directory: Path, options: IndexOptions, progress: Progress) -> int:
    """Write tantivy's files and return the number of passages."""
    import tantivy

    directory.mkdir()
    schema = tantivy.SchemaBuilder()
    # Bytes, because tantivy would index a string, and ids are not searched for.
    schema.add_bytes_field("id", stored=True, indexed=False)
    schema.add_text_field("contents", stored=True, tokenizer_name=_ANALYZER, index_option="freq")
    index = tantivy.Index(schema.build(), str(directory))
    index.register_tokenizer(_ANALYZER, analyzer())
    writer = index.writer(_WRITER_BYTES, 1)
    passages = 0
    try:
        for identity, contents in progress(read_corpus(options.corpus), None, "passages"):
            writer.add_document(tantivy.Document(id=identity.encode(), contents=contents))
            passages += 1
        if not passages:
            raise ValueError(f"{options.corpus} has no passages; give a file with at least one")
        writer.commit()
    finally:
        # Its threads write files; after an error too they end before the directory is removed.
        writer.wait_merging_threads()
    for lock in directory.glob(".tantivy-*.lock"):
        lock.unlink()
    for path in directory.iterdir():
        # tantivy makes two of them unreadable for other users; whoever may read the corpus may read its index.
        path.chmod(options.corpus.stat().st_mode & 0o666 | 0o600)
    return passages


def read_corpus(path: Path) -> Iterator[tuple[str, str]]:
    """Yield id and contents of the passages of a corpus file, valid Unicode and not blank; skip empty lines.

    Raises:
        ValueError: a line is not a passage (the message has its number), or the gzip file is damaged.
    """
    for number, row in json_lines(path):
        fields = row if isinstance(row, dict) else {}
        identity, contents = fields.get("id"), fields.get("contents")
        if isinstance(identity, int) and not isinstance(identity, bool):
            identity = str(identity)
        for name, value in (("id", identity), ("contents", contents)):
            if not isinstance(value, str) or not value.strip() or as_unicode(value) != value:
                message = f"{name} is missing, blank, no string, or has half a surrogate pair; fix or remove the line"
                raise ValueError(f"{path}, line {number}: {message}")
        yield str(identity), str(contents)
