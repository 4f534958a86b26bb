"""A tantivy index on disk: how texts become terms, how it is built, when it counts as complete.

Layout: ``DIR/index`` holds tantivy's files, ``DIR/manifest.json`` says what they are. The directory appears at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_trgrpo import __version__
from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.retrieval.backend import optional_module
from verl_trgrpo.retrieval.corpus import Corpus
from verl_trgrpo.retrieval.staging import staged_directory

# Another number where old indexes cannot be searched with new code: schema or analysis changed.
FORMAT = 1

MANIFEST = "manifest.json"
FILES = "index"
ANALYZER = "english"
# Bytes; a longer run of letters is no word that anybody asks for.
MAX_TERM_BYTES = 64
_REPORT_EVERY = 1000

Progress = Callable[[Corpus, int], None]


@dataclass(frozen=True)
class IndexOptions:
    """What to index, and where.

    corpus: file of JSON lines, plain or gzip.
    out: directory for the index.
    threads: of the writer, 1 to 8. With more than one, passages with equal scores may change places between builds.
    memory_mb: of the writer, in megabytes, at least 16 for each thread; more memory, fewer merges.
    force: replace an index of another corpus, or build the same one again.

    Raises ValueError that lists everything that is wrong.
    """

    corpus: Path
    out: Path
    threads: int = 1
    memory_mb: int = 512
    force: bool = False

    def __post_init__(self) -> None:
        problems = []
        if not self.corpus.is_file():
            problems.append(f"corpus {self.corpus} is not a file; check the path")
        if not 1 <= self.threads <= 8:
            problems.append(f"threads is {self.threads}; choose 1 to 8")
        elif not 16 * self.threads <= self.memory_mb <= 4000 * self.threads:
            problems.append(
                f"memory_mb is {self.memory_mb}; with {self.threads} threads choose {16 * self.threads} to "
                f"{4000 * self.threads}"
            )
        manifest = read_manifest(self.out)
        if self.out.exists() and not self.out.is_dir():
            problems.append(f"out {self.out} is not a directory; choose another")
        elif manifest is None and self.out.is_dir() and any(self.out.iterdir()):
            problems.append(f"out {self.out} holds files that are no index from here; choose another directory")
        raise_problems(problems)


@dataclass(frozen=True)
class IndexResult:
    """The manifest of the index, and whether it was built now or found complete."""

    manifest: dict[str, Any]
    built: bool


def build_index(options: IndexOptions, progress: Progress = lambda corpus, passages: None) -> IndexResult:
    """Build the index of a corpus, or find that `out` has it already (same file name, size, time and format).

    `progress` is called now and then with the corpus and the number of passages so far.

    Raises:
        ValueError: a corpus without passages, a damaged one, an index of another corpus in `out` without force, or a
            directory that cannot be written.
        RuntimeError: tantivy is not installed.
    """
    optional_module("tantivy")
    corpus = Corpus(options.corpus)
    recorded = read_manifest(options.out)
    if recorded is not None and not options.force:
        if _identity(recorded) == _identity(_facts(options.corpus)):
            check_complete(options.out)
            return IndexResult(recorded, built=False)
        raise ValueError(
            f"{options.out} holds an index of {recorded.get('corpus', {}).get('name')} (format {recorded.get('format')}), "
            f"not of {options.corpus} as it is now; choose another directory, or force the build to replace it"
        )
    with staged_directory(options.out) as stage:
        documents = _write(corpus, stage / FILES, options, progress)
        manifest = _facts(options.corpus) | {
            "documents": documents,
            "lines": corpus.lines,
            "bad_lines": corpus.bad_lines,
            "bad_examples": corpus.bad_examples,
            "files": {path.name: path.stat().st_size for path in sorted((stage / FILES).iterdir())},
        }
        manifest["corpus"]["sha256"] = corpus.sha256
        (stage / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return IndexResult(manifest, built=True)


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """Return the manifest of an index, or None where there is none."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and "format" in manifest and "files" in manifest else None


def check_complete(directory: Path) -> dict[str, Any]:
    """Return the manifest; ValueError where `directory` is no index, one of another format, or damaged."""
    manifest = read_manifest(directory)
    if manifest is None:
        raise ValueError(f"{directory} is not a finished index; build one with verl-trgrpo search index")
    if manifest["format"] != FORMAT:
        raise ValueError(f"{directory} has format {manifest['format']}, this version reads {FORMAT}; build it again")
    for name, size in manifest["files"].items():
        path = directory / FILES / name
        if not path.is_file() or path.stat().st_size != size:
            raise ValueError(f"{path} is missing or not {size} bytes long; the index is damaged, build it again")
    return manifest


def analyzer(drop_stop_words: bool = False) -> Any:
    """Return the analysis of texts: words in lower case, without accents, stemmed as English.

    The index keeps stop words, so that a query of nothing else ("The Who") finds something; other queries lose them.
    """
    tantivy = optional_module("tantivy")
    filters = tantivy.Filter
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    builder = builder.filter(filters.remove_long(MAX_TERM_BYTES)).filter(filters.lowercase())
    if drop_stop_words:
        builder = builder.filter(filters.stopword("english"))
    return builder.filter(filters.ascii_fold()).filter(filters.stemmer("english")).build()


def _schema() -> Any:
    tantivy = optional_module("tantivy")
    builder = tantivy.SchemaBuilder()
    # Bytes, because tantivy would index a text; nobody searches for ids.
    builder.add_bytes_field("id", stored=True, indexed=False)
    builder.add_text_field("contents", stored=True, tokenizer_name=ANALYZER, index_option="freq")
    return builder.build()


def _write(corpus: Corpus, directory: Path, options: IndexOptions, progress: Progress) -> int:
    tantivy = optional_module("tantivy")
    directory.mkdir()
    index = tantivy.Index(_schema(), str(directory))
    index.register_tokenizer(ANALYZER, analyzer())
    writer = index.writer(options.memory_mb * 1_000_000, options.threads)
    try:
        passages = _add(corpus, writer, progress)
    except BaseException:
        # Threads that merge would write into a directory that is about to be removed.
        with suppress(ValueError):
            writer.wait_merging_threads()
        raise
    with _told_plainly():
        writer.wait_merging_threads()
    for lock in directory.glob(".tantivy-*.lock"):
        lock.unlink()
    for path in directory.iterdir():
        # tantivy keeps two of them from other users; an index has no secrets that its corpus has not.
        path.chmod(options.corpus.stat().st_mode & 0o666 | 0o600)
    return passages


def _add(corpus: Corpus, writer: Any, progress: Progress) -> int:
    tantivy = optional_module("tantivy")
    passages = 0
    for passages, passage in enumerate(corpus, start=1):
        document = tantivy.Document(id=passage.id.encode(), contents=passage.contents)
        with _told_plainly():
            writer.add_document(document)
        if passages % _REPORT_EVERY == 0:
            progress(corpus, passages)
    progress(corpus, passages)
    if not passages:
        found = f": {'; '.join(corpus.bad_examples)}" if corpus.bad_examples else ""
        raise ValueError(f"{corpus.path} has no passage {{'id', 'contents'}} in {corpus.lines} lines{found}")
    with _told_plainly():
        writer.commit()
    return passages


@contextmanager
def _told_plainly() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"the index cannot be written; is the disk full? tantivy says: {error}") from error


def _facts(corpus: Path) -> dict[str, Any]:
    from importlib.metadata import version

    status = corpus.stat()
    return {
        "format": FORMAT,
        "package_version": __version__,
        "library_versions": {"tantivy": version("tantivy")},
        "corpus": {"name": corpus.name, "bytes": status.st_size, "modified_ns": status.st_mtime_ns},
    }


def _identity(manifest: dict[str, Any]) -> tuple[Any, ...]:
    corpus = manifest.get("corpus", {})
    return manifest.get("format"), corpus.get("name"), corpus.get("bytes"), corpus.get("modified_ns")
