"""Build an index of a corpus: JSON lines with `id` and `contents`, plain or gzip, as the wiki-18 dump has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from verl_trgrpo import __version__
from verl_trgrpo.common.files import json_lines, staged_directory, write_json
from verl_trgrpo.common.options import Options
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.retrieval.index import FILES, FORMAT, MANIFEST, analyzer, as_unicode, read_manifest

_ANALYZER = "english"

# Memory of each thread of tantivy's writer; with less, more segments are written and merged.
_BYTES_PER_THREAD = 512_000_000


@dataclass(frozen=True)
class IndexOptions(Options):
    """Build an index of a corpus of passages.

    Each line of the corpus is {"id": "7", "contents": "\\"Title\\"\\ntext"}; any other line stops the build.
    The index appears when it is complete; after an interruption the same command starts over.

    Args:
        corpus: File of JSON lines, plain or gzip.
        out: Directory for the index.
        threads: Threads of the writer, of up to 0.5 GB each. With more than one, passages with equal scores may change
            places between builds.
        force: Replace an existing index.
    """

    corpus: Path
    out: Path
    threads: Annotated[int, "[1, 256]"] = 1
    force: bool = False

    def problems(self) -> list[str]:
        """Return a message for each problem of corpus and directory."""
        messages = []
        if not self.corpus.is_file():
            messages.append(f"corpus={self.corpus} is not a file; check the path")
        if self.out.exists() and not self.out.is_dir():
            messages.append(f"out={self.out} is not a directory; choose another")
        elif self.out.is_dir() and read_manifest(self.out) is None and any(self.out.iterdir()):
            messages.append(f"out={self.out} holds files that are not an index; choose another directory")
        elif read_manifest(self.out) is not None and not self.force:
            messages.append(f"out={self.out} holds an index; choose another directory, or replace it with --force")
        return messages


def build_index(options: IndexOptions, progress: Progress = no_progress) -> dict[str, Any]:
    """Build the index of a corpus and return its manifest.

    Raises:
        ValueError: the corpus is damaged or has no passages, or the directory cannot be written.
    """
    status = options.corpus.stat()
    with staged_directory(options.out, lambda _: (FILES, MANIFEST)) as stage:
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
    # Bytes, because tantivy would index a string, and ids are not searched for.
    schema.add_bytes_field("id", stored=True, indexed=False)
    schema.add_text_field("contents", stored=True, tokenizer_name=_ANALYZER, index_option="freq")
    index = tantivy.Index(schema.build(), str(directory))
    index.register_tokenizer(_ANALYZER, analyzer())
    writer = index.writer(_BYTES_PER_THREAD * options.threads, options.threads)
    passages = 0
    for passage in progress(read_corpus(options.corpus), None, "passages"):
        writer.add_document(tantivy.Document(id=passage.id.encode(), contents=passage.contents))
        passages += 1
    if not passages:
        raise ValueError(f"{options.corpus} has no passages; give a file with at least one")
    writer.commit()
    writer.wait_merging_threads()
    for lock in directory.glob(".tantivy-*.lock"):
        lock.unlink()
    for path in directory.iterdir():
        # tantivy makes two of them unreadable for other users; whoever may read the corpus may read its index.
        path.chmod(options.corpus.stat().st_mode & 0o666 | 0o600)
    return passages


class Passage(NamedTuple):
    """One line of a corpus; both fields are valid Unicode and not blank."""

    id: str
    contents: str


def read_corpus(path: Path) -> Iterator[Passage]:
    """Yield the passages of a corpus file; empty lines are skipped.

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
        yield Passage(str(identity), str(contents))
