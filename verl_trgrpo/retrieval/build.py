"""Build an index of a corpus; it appears when it is complete."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from verl_trgrpo import __version__
from verl_trgrpo.common.files import staged_directory, write_json
from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.retrieval import require
from verl_trgrpo.retrieval.corpus import read_corpus
from verl_trgrpo.retrieval.index import FILES, FORMAT, MANIFEST, analyzer, read_manifest

_ANALYZER = "english"


@dataclass(frozen=True)
class IndexOptions:
    """Build an index of a corpus of passages.

    Each line of the corpus is {"id": "7", "contents": "\\"Title\\"\\ntext"}. A line that is not stops the build.
    The index appears when it is complete; a build that was stopped starts over when the same command is given again.

    Args:
        corpus: File of JSON lines, plain or gzip.
        out: Directory for the index.
        threads: Of the writer. With more than one, passages with equal scores may change places between builds.
        memory_mb: Of the writer, in megabytes, at least 16 for each thread; more memory, fewer merges.
        force: Replace the index that is there.
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
        if self.threads < 1 or not 16 * self.threads <= self.memory_mb <= 4000 * self.threads:
            problems.append(
                f"threads is {self.threads} and memory_mb {self.memory_mb}; each thread needs 16 to 4000 megabytes"
            )
        if self.out.exists() and not self.out.is_dir():
            problems.append(f"out {self.out} is not a directory; choose another")
        elif self.out.is_dir() and read_manifest(self.out) is None and any(self.out.iterdir()):
            problems.append(f"out {self.out} holds files that are no index from here; choose another directory")
        elif read_manifest(self.out) is not None and not self.force:
            problems.append(f"out {self.out} holds an index; choose another directory, or replace it with --force")
        raise_invalid(problems)


def build_index(options: IndexOptions, progress: Progress = no_progress) -> dict[str, Any]:
    """Build the index of a corpus and return its manifest.

    Raises:
        ValueError: a corpus without passages, a damaged one, or a directory that cannot be written.
        RuntimeError: tantivy is not installed.
    """
    require("tantivy")
    status = options.corpus.stat()
    with staged_directory(options.out) as stage:
        documents = _write(stage / FILES, options, progress)
        manifest = {
            "format": FORMAT,
            "package_version": __version__,
            "library_versions": {"tantivy": version("tantivy")},
            "corpus": {"name": options.corpus.name, "bytes": status.st_size, "modified_ns": status.st_mtime_ns},
            "documents": documents,
            "files": {path.name: path.stat().st_size for path in sorted((stage / FILES).iterdir())},
        }
        write_json(stage / MANIFEST, manifest)
    return manifest


def _write(directory: Path, options: IndexOptions, progress: Progress) -> int:
    """Write tantivy's files and return the number of passages."""
    import tantivy

    directory.mkdir()
    schema = tantivy.SchemaBuilder()
    # Bytes, because tantivy would index a text; nobody searches for ids.
    schema.add_bytes_field("id", stored=True, indexed=False)
    schema.add_text_field("contents", stored=True, tokenizer_name=_ANALYZER, index_option="freq")
    index = tantivy.Index(schema.build(), str(directory))
    index.register_tokenizer(_ANALYZER, analyzer())
    writer = index.writer(options.memory_mb * 1_000_000, options.threads)
    passages = 0
    for passage in progress(read_corpus(options.corpus), None, "passages"):
        writer.add_document(tantivy.Document(id=passage.id.encode(), contents=passage.contents))
        passages += 1
    if not passages:
        raise ValueError(f"{options.corpus} has no passages; give a file with some")
    writer.commit()
    writer.wait_merging_threads()
    for lock in directory.glob(".tantivy-*.lock"):
        lock.unlink()
    for path in directory.iterdir():
        # tantivy keeps two of them from other users; an index has no secrets that its corpus has not.
        path.chmod(options.corpus.stat().st_mode & 0o666 | 0o600)
    return passages
