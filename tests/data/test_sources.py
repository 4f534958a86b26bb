"""Rows of foreign files: every type, line numbers, malformed rows, damaged files."""

import gzip
import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_trgrpo.data.sources import (
    UNUSABLE,
    draw,
    find_source_files,
    load_hub,
    parse_records,
    read_records,
    warn_of_test_files,
)

ROWS = [{"text": "Zoë", "n": 1}, {"text": "line\u2028separator and \u0085 next line", "n": 2}, {"text": "", "n": 3}]


def write(path, rows=ROWS):
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if path.name.endswith(".jsonl.gz"):
        path.write_bytes(gzip.compress(lines.encode()))
    elif path.suffix == ".jsonl":
        path.write_text(lines, encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix == ".arrow":
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.parquet", "a.arrow"])
def test_every_type_gives_the_same_rows_and_says_where_they_are_from(tmp_path, name):
    records = list(read_records(write(tmp_path / name)))
    assert [record.row for record in records] == ROWS
    assert [record.origin for record in records] == [f"{name}#{number}" for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"n": ', "not JSON"),
        (b"[2]", "type list"),
        (b'"text"', "type str"),
        (b"null", "type NoneType"),
        (b'{"t": "\xff"}', "not JSON"),
        (b'{"n": 2, "n": 2}', "key 'n' occurs twice"),
        (b'{"n": [{"a": {"b": 1, "c": 2, "b": 3}}]}', "key 'b' occurs twice"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_malformed_line_is_an_error_with_its_number(tmp_path, line, reason):
    (tmp_path / "a.jsonl").write_bytes(b'{"n": 1}\n\n' + line + b'\n{"n": 6}\n')
    with pytest.raises(ValueError, match=rf"a\.jsonl, (row|line) 3: it is .*{reason}"):
        list(read_records(tmp_path / "a.jsonl"))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", b"{", "cannot read .*a.json"),
        ("a.json", b'{"n": 1}', "holds a dict"),
        ("a.json", b'[{"n": 1}, {"n": 1, "n": 2}]', "a.json .*key 'n' occurs twice"),
        ("a.json", b"[" * 100_000, "cannot read .*a.json"),
        ("a.parquet", b"PAR1", "not a readable Parquet file"),
        ("a.arrow", b"ARROW1", "a.arrow is not a readable Arrow file"),
        ("a.arrow", b"", "a.arrow is not a readable Arrow file"),
        ("a.jsonl.gz", b"plain", "a.jsonl.gz is a damaged gzip file"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path, name, content, reason):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        list(read_records(tmp_path / name))


@pytest.mark.parametrize("damage", ["cut short", "overwritten"])
def test_a_damaged_gzip_file_is_one_clear_error(tmp_path, damage):
    path = write(tmp_path / "a.jsonl.gz", [{"text": f"{n}", "n": n} for n in range(2000)])
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    if damage == "overwritten":
        content[middle : middle + 100] = b"\xff" * 100
    path.write_bytes(content[:middle] if damage == "cut short" else content)
    with pytest.raises(ValueError, match=r"a\.jsonl\.gz"):
        list(read_records(path))


def test_what_datasets_saves_to_disk_is_read(tmp_path):
    import datasets

    datasets.Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "saved"))
    [file] = found(tmp_path / "saved").parts["rows"]
    assert [record.row for record in read_records(file)] == ROWS


def found(source, part_of=lambda shown: "rows" if shown.parent.name in ("", "part") else ""):
    return find_source_files(source, source / "out", part_of, "files of rows")


def test_every_file_below_a_directory_is_of_a_part_or_left_out_with_its_reason(tmp_path):
    for name in (
        "b.json",
        "a.PARQUET",
        "c.jsonl.gz",
        "part/d.jsonl",
        "other/e.json",
        "out/train.parquet",
        ".git/f.json",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    for name in ("README.md", "LICENSE", ".hidden.json", "dataset_info.json", "rows.csv", "raw"):
        (tmp_path / name).write_text("")
    files = found(tmp_path)
    names = [str(file.relative_to(tmp_path)) for file in files.parts["rows"]]
    assert names == ["a.PARQUET", "b.json", "c.jsonl.gz", "part/d.jsonl"]
    assert {*files.left_out} == {"raw", "rows.csv", "other/e.json"}
    assert files.unused(files.parts["rows"][1:]).keys() - files.left_out.keys() == {"a.PARQUET"}
    with pytest.raises(ValueError, match=r"a.PARQUET and .*b.json are both rows"):
        files.single()


def test_a_source_that_is_not_there_is_a_clear_error(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        found(tmp_path / "nowhere.jsonl")
    with pytest.raises(ValueError, match="has no data files"):
        found(tmp_path)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "math.json").write_text("")
    with pytest.raises(ValueError, match=r"found train/math.json; expected files of rows"):
        found(tmp_path)
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(ValueError, match="unknown type"):
        found(tmp_path / "a.csv")


def test_a_row_that_cannot_be_used_costs_itself_and_columns_that_nobody_asks_for_are_named(tmp_path, caplog):
    def number(record):
        return int(record.row.get("text"))

    rows = [{"Text": "12", "hint": "x", "id": 7}, {"Text": "one", "empty": [None]}, {"text": "3", "TEXT": "4"}]
    parsed = parse_records(read_records(write(tmp_path / "a.jsonl", rows)), number)
    assert parsed.items == [12] and parsed.unread == ["hint", "id"]
    assert parsed.counts(1, {"other": 0}) == {
        "read": 3, "kept": 1, "dropped": {UNUSABLE: 2}, "rows_not_used": ["a.jsonl#2", "a.jsonl#3"],
        "columns_not_read": ["hint", "id"],
    }  # fmt: skip
    assert "row 2: invalid literal" in caplog.text and "the columns text and TEXT have one name" in caplog.text
    assert "not read: hint;" in caplog.text
    with pytest.raises(ValueError, match=r"b.jsonl, row 1: .*; no row of b.jsonl \(1\) can be used"):
        parse_records(
            [*read_records(tmp_path / "a.jsonl"), *read_records(write(tmp_path / "b.jsonl", rows[1:2]))], number
        )


def test_the_hub_is_read_from_a_copy_of_a_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hub" / "part").mkdir(parents=True)
    write(tmp_path / "hub" / "part" / "train.jsonl")
    card = "---\nconfigs:\n  - config_name: part\n    data_files:\n      - split: train\n        path: part/train.jsonl\n---\n"
    (tmp_path / "hub" / "README.md").write_text(card)
    records = list(load_hub("hub", "main", "train", "part"))
    assert [record.row for record in records] == ROWS
    assert records[0].origin == "hub/part/train#1"
    with pytest.raises(ValueError, match=r"could not load hub/part/test at revision 'main'"):
        list(load_hub("hub", "main", "test", "part"))


def test_a_draw_keeps_the_order_repeats_nothing_and_depends_on_the_seed():
    items = [f"item {number}" for number in range(50)]
    draws = [draw(items, 10, f"seed {seed}") for seed in range(5)]
    for drawn in draws:
        assert len({*drawn}) == 10
        assert drawn == [item for item in items if item in drawn]
    assert len({*map(tuple, draws)}) == 5
    assert draw(items, 10, "seed 0") == draws[0]
    assert draw(items, 51, "seed 0") == draw(items, None, "seed 0") == items


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        ("people3_num1000_test.jsonl", {"quiz": "x"}, "its name is that of a test file"),
        ("heldout.jsonl", {"quiz": "x"}, "its name is that of a test file"),
        ("aime_2024/data/train-00000-of-00001.jsonl", {"problem": "x"}, "its name is that of a test file"),
        ("MATH-500/all.jsonl", {"problem": "x"}, "its name is that of a test file"),
        ("rows.jsonl", {"extra_info": {"split": "test"}}, "say split: test"),
        ("rows.jsonl", {"split": "test"}, "say split: test"),
        ("train.jsonl", {"split": "train"}, ""),
        ("latest.jsonl", {}, ""),
        ("aimed/train.jsonl", {}, ""),
    ],
)
def test_files_to_train_on_that_look_like_test_files_are_named(tmp_path, caplog, name, row, words):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(json.dumps(row) + "\n")
    warn_of_test_files([tmp_path / name])
    assert (name in caplog.text) == bool(words) and words in caplog.text


DAMAGED = """
import random, sys
from pathlib import Path
from verl_trgrpo.data.sources import read_records
path, draw, found = Path(sys.argv[1]), random.Random(0), set()
whole = path.read_bytes()
for _ in range(200):
    content = bytearray(whole)
    for _ in range(3):
        content[draw.randrange(len(content))] = draw.randrange(256)
    path.write_bytes(content)
    try:
        found.add(bool(list(read_records(path))))
    except ValueError as error:
        found.add(str(error).rpartition('; ')[2])
print(sorted(map(str, found)))
"""


def test_a_damaged_arrow_file_is_refused_and_ends_no_process(tmp_path):
    """Offsets that lead outside of a buffer would: the reader trusts its format."""
    rows = [{"text": "what is " * (i % 5), "list": [{"a": i, "b": ["x"] * (i % 3)}]} for i in range(300)]
    path = write(tmp_path / "a.arrow", rows)
    done = subprocess.run([sys.executable, "-c", DAMAGED, str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "['True', 'get the file again']\n"), done.stderr
