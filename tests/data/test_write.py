"""`DataSet`: what is written, when nothing has to be, and what is not replaced."""

import hashlib
import json
import os

import pyarrow.parquet as pq
import pytest

from verl_trgrpo.common.files import directory_lock
from verl_trgrpo.data.rows import arrow_schema, build_row
from verl_trgrpo.data.sources import counts
from verl_trgrpo.tasks.data_set import BuilderOptions, DataSet, manifest_text


def row(truth="1"):
    return build_row(
        data_source="math", prompt=[{"role": "user", "content": "Why?"}], ability="math", ground_truth=truth
    )


COUNTS = {"source": counts(2, {"too long": 1, "never": 0})}


def data_set(out, builder="x", inputs=None, force=False, replace_other=False, **made_from):
    made_from = {"seed": 0, **made_from}
    command = ["x.py", "--out", "a b"]
    return DataSet(out, builder, made_from, command, inputs or {}, ["numpy"], force, replace_other)


def write(out, splits=None, **options):
    """Build as a builder does; return the manifest, or None if the data set was there."""
    asked = data_set(out, **options)
    return None if asked.is_there() else asked.write(splits or {"train": [row()] * 2}, arrow_schema(), COUNTS)


def content_of(out):
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def test_files_and_manifest_say_what_was_done(tmp_path):
    result = write(tmp_path / "out", people=(2, 3))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert result == manifest
    assert manifest["command"] == "x.py --out 'a b'"
    assert manifest["arguments"] == {"seed": 0, "people": [2, 3]}
    assert manifest["counts"] == {"source": {"read": 3, "kept": 2, "dropped": {"too long": 1}}}
    content = (tmp_path / "out" / "train.parquet").read_bytes()
    assert manifest["files"] == {"train.parquet": {"rows": 2, "sha256": hashlib.sha256(content).hexdigest()}}
    written = pq.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    assert written == [row() | {"extra_info": {"index": index, "split": "train"}} for index in (0, 1)]
    assert set(manifest["library_versions"]) == {"numpy", "pyarrow"}
    report = manifest_text(tmp_path, manifest)
    assert "2 kept of 3" in report and "1 dropped: too long" in report and f"{tmp_path / 'train.parquet'}: 2" in report
    assert "--force" in manifest_text(tmp_path, None)


def test_a_data_set_is_there_while_its_files_are_whole_and_nothing_forces_it(tmp_path):
    out = tmp_path / "out"
    assert not data_set(out).is_there() and not out.exists()
    assert write(out) and data_set(out).is_there()
    assert not data_set(out, force=True).is_there()
    (out / "train.parquet").write_bytes(b"damaged")
    assert not data_set(out).is_there()
    assert write(out) and data_set(out).is_there()


def test_what_stands_in_the_way_is_said_before_rows_are_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="a file"):
        data_set(tmp_path / "file").is_there()
    with directory_lock(tmp_path / "busy"), pytest.raises(ValueError, match=f"another process \\({os.getpid()}\\)"):
        data_set(tmp_path / "busy").is_there()


def test_what_others_wrote_while_the_rows_were_made_is_not_replaced(tmp_path):
    late = data_set(tmp_path, seed=1)
    assert not late.is_there()
    write(tmp_path)
    before = content_of(tmp_path)
    with pytest.raises(ValueError, match=r"seed was 0, now 1.*--force"):
        late.write({"test": [row()]}, arrow_schema())
    assert content_of(tmp_path) == before


def test_a_file_of_the_old_data_set_does_not_stay_beside_the_new_one(tmp_path):
    write(tmp_path, {"test_3ppl": [row()]})
    (tmp_path / "notes.txt").write_text("mine")
    write(tmp_path, seed=1, replace_other=True)
    assert {path.name for path in tmp_path.iterdir()} == {"train.parquet", "manifest.json", "notes.txt"}


REFUSED = {
    "no manifest": (lambda out: (out / "train.parquet").write_text("somebody's work"), "train.parquet"),
    "another builder's": (lambda out: write(out, builder="other"), "manifest.json, train.parquet"),
    "another program's manifest": (
        lambda out: (out / "manifest.json").write_text('{"files": {"train.parquet": {}}}'),
        "manifest.json",
    ),
    "not in the manifest": (lambda out: (write(out), (out / "test.parquet").write_text("x")), "test.parquet"),
    "other arguments": (lambda out: write(out, people=[2]), r"seed was 0, now 1; people was \[2\], now None"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_the_same_data_set_is_replaced_only_by_force(tmp_path, name):
    prepare, named = REFUSED[name]
    prepare(tmp_path)
    before = content_of(tmp_path)
    with pytest.raises(ValueError, match=rf"{named}.*--force"):
        write(tmp_path, {"test": [row()]}, seed=1)
    assert content_of(tmp_path) == before
    assert write(tmp_path, seed=1, force=True)


def test_inputs_count_by_content_and_are_not_replaced(tmp_path):
    source, moved = tmp_path / "source.jsonl", tmp_path / "b" / "source.jsonl"
    moved.parent.mkdir()
    for place, written in ((source, True), (moved, False)):
        place.write_text("a")
        assert (write(tmp_path / "out", inputs={"train": place}) is not None) == written
    source.write_text("c")
    with pytest.raises(ValueError, match=r"source was .*--force"):
        write(tmp_path / "out", inputs={"train": source})
    assert write(tmp_path / "out", inputs={"train": source}, force=True)
    with pytest.raises(ValueError, match=r"source\.jsonl"):
        write(tmp_path, inputs={"train": source}, force=True)


@pytest.mark.parametrize(("bad", "reason"), [([row(truth="")], "ground_truth"), ([], r"test\.parquet")])
def test_rows_that_verl_cannot_use_are_not_written(tmp_path, bad, reason):
    write(tmp_path)
    before = content_of(tmp_path)
    with pytest.raises(ValueError, match=reason):
        write(tmp_path, {"train": [row()], "test": bad}, seed=1, replace_other=True)
    assert content_of(tmp_path) == before


def test_the_command_of_options_leaves_out_defaults_and_force(tmp_path):
    described = BuilderOptions(out=tmp_path, seed=3, force=True).data_set("x", "kk", libraries=["numpy"], limit=1)
    assert described.command == ["verl-trgrpo", "data", "build", "kk", "--out", str(tmp_path), "--seed", "3"]
    assert described.made_from == {"seed": 3, "limit": 1} and described.libraries == ["numpy"] and described.force
