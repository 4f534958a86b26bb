"""Reading a corpus file, whatever its lines hold."""

import gzip
import hashlib
import json

import pytest

from verl_trgrpo.retrieval import corpus as corpus_module
from verl_trgrpo.retrieval.corpus import Corpus, Passage

GOOD = [
    ({"id": "0", "contents": '"Title"\ntext'}, Passage("0", '"Title"\ntext')),
    ({"id": 17, "contents": "a number as id"}, Passage("17", "a number as id")),
    ({"id": "ü", "contents": '"東京 🗼"\nUnicode', "more": [1]}, Passage("ü", '"東京 🗼"\nUnicode')),
]

BAD = {
    "not JSON": b"{'id': 1}",
    "cut off": b'{"id": "1", "contents": "te',
    "a list": b'["1", "text"]',
    "no id": b'{"contents": "text"}',
    "no contents": b'{"id": "1"}',
    "null": b'{"id": "1", "contents": null}',
    "only spaces": b'{"id": "1", "contents": " "}',
    "id true": b'{"id": true, "contents": "text"}',
    "Latin-1": '{"id": "1", "contents": "é"}'.encode("latin-1"),
    "half a surrogate pair": b'{"id": "1", "contents": "\\ud83d"}',
    "too deep": b"[" * 100_000,
}


def write(path, lines):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def test_passages_come_in_order_and_empty_lines_are_nothing(tmp_path):
    rows = [json.dumps(row, ensure_ascii=position == 1).encode() for position, (row, _) in enumerate(GOOD)]
    corpus = Corpus(write(tmp_path / "corpus.jsonl", [rows[0], b"", b"  \r", *rows[1:]]))
    assert list(corpus) == [passage for _, passage in GOOD]
    assert (corpus.lines, corpus.bad_lines, corpus.bad_examples) == (5, 0, [])


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_left_out_and_reported_with_its_number(tmp_path, name):
    good = json.dumps(GOOD[0][0]).encode()
    corpus = Corpus(write(tmp_path / "corpus.jsonl", [good, BAD[name], good]))
    assert len(list(corpus)) == 2
    assert corpus.bad_lines == 1
    assert len(corpus.bad_examples) == 1 and corpus.bad_examples[0].startswith("line 2: ")


def test_many_bad_lines_are_counted_and_the_first_few_reported(tmp_path):
    corpus = Corpus(write(tmp_path / "corpus.jsonl", [b"x"] * 50))
    assert list(corpus) == []
    assert corpus.bad_lines == 50
    assert [example.split(":")[0] for example in corpus.bad_examples] == [f"line {n}" for n in (1, 2, 3, 4, 5)]


def test_a_line_that_is_too_long_is_one_bad_line(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_module, "MAX_LINE_BYTES", 100)
    good = json.dumps(GOOD[0][0]).encode()
    corpus = Corpus(write(tmp_path / "corpus.jsonl", [b"x" * 950, good, b"x" * 101, good]))
    assert len(list(corpus)) == 2
    assert (corpus.lines, corpus.bad_lines) == (4, 2)


def test_a_file_without_a_last_line_break_is_read_to_its_end(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "1", "contents": "one"}\n{"id": "2", "contents": "two"}')
    assert [passage.id for passage in Corpus(path)] == ["1", "2"]


@pytest.mark.parametrize("name", ["corpus.jsonl.gz", "no_suffix"])
def test_gzip_is_recognised_by_content_and_digested_as_it_is_on_disk(tmp_path, name):
    plain = b"".join(json.dumps({"id": str(i), "contents": f"text {i}"}).encode() + b"\n" for i in range(10_000))
    path = tmp_path / name
    path.write_bytes(gzip.compress(plain))
    corpus = Corpus(path)
    assert [passage.id for passage in corpus] == [str(i) for i in range(10_000)]
    assert corpus.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert corpus.bytes_read == corpus.size == path.stat().st_size


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-2000], lambda data: data[:3000] + b"\x00\xff" * 200 + data[3400:]]
)
def test_a_damaged_gzip_file_is_an_error_and_not_a_short_corpus(tmp_path, damage):
    rows = [json.dumps({"id": str(i), "contents": hashlib.sha256(str(i).encode()).hexdigest()}) for i in range(2000)]
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(damage(gzip.compress("\n".join(rows).encode())))
    with pytest.raises(ValueError, match="damaged gzip file"):
        list(Corpus(path))
