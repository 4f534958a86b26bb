"""Reading a corpus file, whatever its lines hold."""

import gzip
import hashlib
import json

import pytest

from verl_trgrpo.retrieval.corpus import Passage, read_corpus

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
    path.write_bytes(b"\n".join(lines))
    return path


def test_passages_come_in_order_and_empty_lines_are_nothing(tmp_path):
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
    assert [passage.id for passage in read_corpus(path)] == [str(i) for i in range(1000)]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-2000], lambda data: data[:3000] + b"\x00\xff" * 200 + data[3400:]]
)
def test_a_damaged_gzip_file_is_an_error_and_not_a_short_corpus(tmp_path, damage):
    rows = [json.dumps({"id": str(i), "contents": hashlib.sha256(str(i).encode()).hexdigest()}) for i in range(2000)]
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(damage(gzip.compress("\n".join(rows).encode())))
    with pytest.raises(ValueError, match="damaged gzip file"):
        list(read_corpus(path))
