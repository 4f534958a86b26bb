"""The steps that all builders share: what is written, when nothing has to be, and what stays."""

import hashlib
import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from verl_trgrpo.data import schema
from verl_trgrpo.data.build import BuilderOptions, DataSet, build_data_set, counts, run_builder


def row(text="Which number?", truth="1"):
    return schema.build_row(
        data_source="math",
        prompt=[{"role": "user", "content": text}],
        ability="math",
        ground_truth=truth,
        extra_info={},
    )


def data_set(rows=2, name="train"):
    found = {"source": counts(rows, {"too long": 1, "never": 0})}
    return DataSet({name: [row()] * rows}, schema.arrow_schema([]), found)


def build(out, make, force=False, builder="x", **arguments):
    command = ["python", "x.py", "--out", "a b"]
    return build_data_set(
        builder, out, {"seed": 0, **arguments}, make, command=command, libraries=["numpy"], force=force
    )


def test_files_and_manifest_say_what_was_done(tmp_path):
    result = build(tmp_path / "out", data_set)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert result == manifest
    assert manifest["command"] == "python x.py --out 'a b'"
    assert manifest["counts"] == {"source": {"read": 3, "kept": 2, "dropped": {"too long": 1}}}
    content = (tmp_path / "out" / "train.parquet").read_bytes()
    assert manifest["files"] == {"train.parquet": {"rows": 2, "sha256": hashlib.sha256(content).hexdigest()}}
    written = pq.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    assert written == [row() | {"extra_info": {"index": index, "split": "train"}} for index in (0, 1)]
    assert set(manifest["library_versions"]) == {"numpy", "pyarrow"}


def test_nothing_is_built_twice_unless_it_has_to_be(tmp_path):
    made = []

    def make():
        made.append(1)
        return data_set()

    for expected in (1, 1):
        build(tmp_path, make)
        assert len(made) == expected
    build(tmp_path, make, seed=1)
    assert len(made) == 2
    (tmp_path / "train.parquet").write_bytes(b"damaged")
    assert build(tmp_path, make, seed=1)
    assert build(tmp_path, make, seed=1, force=True)
    assert len(made) == 4


def test_a_file_of_the_old_data_set_does_not_stay_beside_the_new_one(tmp_path):
    build(tmp_path, lambda: data_set(name="test_3ppl"))
    (tmp_path / "notes.txt").write_text("mine")
    build(tmp_path, data_set, seed=1)
    assert {path.name for path in tmp_path.iterdir()} == {"train.parquet", "manifest.json", "notes.txt"}


FOREIGN = {
    "no manifest": lambda out: (out / "train.parquet").write_text("somebody's work"),
    "another builder's": lambda out: build(out, data_set, builder="other"),
    "another program's manifest": lambda out: (out / "manifest.json").write_text('{"files": {"train.parquet": {}}}'),
    "not in the manifest": lambda out: (build(out, data_set), (out / "test.parquet").write_text("x")),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_another_origin_are_replaced_only_by_force(tmp_path, name):
    FOREIGN[name](tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="which x has not made"):
        build(tmp_path, lambda: data_set(name="test"), seed=1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert build(tmp_path, data_set, seed=1, force=True)


def test_files_that_are_read_count_by_content_and_are_not_built_over(tmp_path):
    source = tmp_path / "source.jsonl"
    options = BuilderOptions(out=tmp_path / "out")
    for place, built in ((source, True), (tmp_path / "b" / "source.jsonl", False)):
        place.parent.mkdir(exist_ok=True)
        place.write_text("a")
        assert (options.build("x", data_set, inputs={"train": place}) is not None) == built
    source.write_text("c")
    with pytest.raises(ValueError, match=r"other arguments \(source was .*--force"):
        options.build("x", data_set, inputs={"train": source})
    assert replace(options, force=True).build("x", data_set, inputs={"train": source})
    with pytest.raises(ValueError, match=r"holds source\.jsonl, which the data set is made from"):
        BuilderOptions(out=tmp_path, force=True).build("x", data_set, inputs={"train": source})


def test_a_data_set_of_other_arguments_is_replaced_only_by_force(tmp_path):
    options = BuilderOptions(out=tmp_path / "out", seed=1)
    assert options.build("x", data_set, people=[2])
    before = (tmp_path / "out/manifest.json").read_bytes()
    with pytest.raises(ValueError) as refused:
        replace(options, seed=2).build("x", data_set, people=[3])
    assert "seed was 1, now 2; people was [2], now [3]" in str(refused.value) and "--force" in str(refused.value)
    assert (tmp_path / "out/manifest.json").read_bytes() == before
    assert replace(options, seed=2, force=True).build("x", data_set, people=[3])


@pytest.mark.parametrize(("bad", "reason"), [(lambda: [row(truth="")], "ground_truth"), (list, "would have no rows")])
def test_rows_that_verl_would_stumble_over_are_not_written(tmp_path, bad, reason):
    build(tmp_path, data_set)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    made = DataSet({"train": bad()}, schema.arrow_schema([]))
    with pytest.raises(ValueError, match=reason):
        build(tmp_path, lambda: made, seed=1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_script_speaks_clearly(tmp_path, capsys):
    def run(build, *words):
        return run_builder(BuilderOptions, build, "data_prep/x.py", "Builds x.", ["--out", str(tmp_path), *words])

    def built(options, progress):
        return options.build("x", data_set)

    def failed(options, progress):
        raise RuntimeError("no memory")

    def interrupted(options, progress):
        raise KeyboardInterrupt

    assert run(built) == 0
    printed = capsys.readouterr().out
    assert "source: 2 kept of 3 read; 1 dropped: too long\n" in printed
    assert f"{tmp_path / 'train.parquet'}: 2 rows" in printed
    assert run(built) == 0
    assert "already has this data set" in capsys.readouterr().out
    assert run(built, "--seed", "x") == 2
    assert capsys.readouterr().err.startswith("x.py: error: ")
    assert run(failed) == 1
    assert capsys.readouterr().err == "x.py: error: no memory\n"
    assert run(interrupted) == 130
    assert "the output directory is as before" in capsys.readouterr().err
