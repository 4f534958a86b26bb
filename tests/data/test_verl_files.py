"""Files that veRL opens, and those that it does not: each case is judged by veRL's own data set, too."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.checked_files import clean, results, row, truth, write
from verl_trgrpo.common.findings import InvalidInputError, Level
from verl_trgrpo.curation.data_check import CheckOptions
from verl_trgrpo.curation.decontaminate import ContaminationOptions
from verl_trgrpo.data.questions.columns import RESERVED_COLUMNS, column_remarks, fits_together
from verl_trgrpo.data.rows import UnreadableFileError
from verl_trgrpo.data.verl_files import open_as_verl
from verl_trgrpo.evaluation.options import EvalOptions


def described(path, **features):
    """Write a file with the metadata of Hugging Face that gives columns these features."""
    table = pa.Table.from_pylist(clean())
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(metadata), path)


STRING = {"dtype": "string", "_type": "Value"}
FILES = {
    "clean": ("a.parquet", lambda path: write(path, clean()), True),
    "JSON lines": ("a.jsonl", lambda path: write(path, clean()), True),
    "JSON": ("a.json", lambda path: write(path, clean()), True),
    "metadata of known features": ("a.parquet", lambda path: described(path, ability=STRING), True),
    "an unknown feature": ("a.parquet", lambda path: described(path, prompt={"_type": "Conversation"}), False),
    "an unknown feature of a column that is not there": ("a.parquet", lambda path: described(path, x={"_type": "New"}), False),
    "a bracket": ("a[1].parquet", lambda path: write(path, clean()), False),
    "a bracket in a directory": ("k[1]/a.parquet", lambda path: write(path, clean()), False),
    "another ending": ("a.pq", lambda path: write(path, clean()), False),
    "an ending in capitals": ("a.PARQUET", lambda path: write(path, clean()), False),
    "gzip": ("a.jsonl.gz", lambda path: path.write_bytes(b""), False),
    "broken JSON": ("a.jsonl", lambda path: path.write_text('{"prompt": ['), False),
    "a key twice in lines": ("a.jsonl", lambda path: path.write_text('{"prompt": "a", "prompt": "b"}\n'), False),
    "no JSON": ("a.json", lambda path: path.write_text(""), False),
    "no Parquet": ("a.parquet", lambda path: path.write_text("{}"), False),
    "a space": ("my data.parquet", lambda path: write(path, clean()), True),
    "braces": ("a{b}.parquet", lambda path: write(path, clean()), True),
}  # fmt: skip


def test_a_key_that_stands_twice_in_a_list_of_rows_is_named_where_verl_takes_the_last(tmp_path, load_in_verl):
    (tmp_path / "a.json").write_text('[\n{"prompt": [{"role": "user", "content": "a", "content": "b"}]}]')
    assert load_in_verl([tmp_path / "a.json"])[0][0]["raw_prompt"][0]["content"] == "b"
    with pytest.raises(UnreadableFileError, match="key 'content' occurs twice"):
        open_as_verl(tmp_path / "a.json")


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_opened_where_verl_opens_it(tmp_path, load_in_verl, name):
    file, make, opens = FILES[name]
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    make(path)
    if opens:
        assert open_as_verl(path).rows == len(load_in_verl([path])[0]) == 6
        assert [*open_as_verl(path).read(["prompt"])] == [{"prompt": made["prompt"]} for made in clean()]
    else:
        with pytest.raises(UnreadableFileError) as caught:
            open_as_verl(path)
        assert str(path) in str(caught.value)
        with pytest.raises(Exception):  # noqa: B017  of the library, of many types
            load_in_verl([path])
    assert results(path, no_rewards=True)["file"].status == ("ok" if opens else "error")


def test_a_pattern_that_finds_other_files_is_refused(tmp_path, load_in_verl):
    for name in ("a[1].parquet", "a1.parquet", "b?.parquet", "b1.parquet"):
        write(tmp_path / name, clean(count=1 if "1." in name else 5))
    assert len(load_in_verl([tmp_path / "a[1].parquet"])[0]) == 1, "veRL reads a1.parquet"
    assert len(load_in_verl([tmp_path / "b?.parquet"])[0]) == 6, "veRL reads both"
    for name, other in (("a[1].parquet", "a1.parquet"), ("b?.parquet", "b1.parquet")):
        with pytest.raises(UnreadableFileError, match=other):
            open_as_verl(tmp_path / name)


LABELS = {"ability": {"names": ["logic", "math"], "_type": "ClassLabel"}}


def test_features_that_only_metadata_tells_apart_do_not_fit_together(tmp_path, load_in_verl):
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    rows = [row(0, ability=1)]
    write(paths[0], rows)
    table = pa.Table.from_pylist(rows)
    metadata = {"huggingface": json.dumps({"info": {"features": LABELS}})}
    pq.write_table(table.replace_schema_metadata(metadata), paths[1])
    [finding] = fits_together({path.name: open_as_verl(path) for path in paths})
    assert (finding.level, finding.file) == (Level.ERROR, "b.parquet")
    with pytest.raises(ValueError):
        load_in_verl(paths)


def test_a_third_file_is_compared_with_all_before(tmp_path):
    rows = [row(0, ability=None), row(0), row(0, ability=1)]
    files = {f"{i}": open_as_verl(write(tmp_path / f"{i}.parquet", [made])) for i, made in enumerate(rows)}
    assert [(found.file, found.level) for found in fits_together(files)] == [("2", Level.ERROR)]


TYPES = {
    "prompt a string": ({"prompt": "Who?"}, "prompt is string"),
    "messages without a role": ({"prompt": [{"content": "Who?"}]}, "prompt is list"),
    "reward_model a string": ({"reward_model": "x"}, "reward_model is string"),
    "no ground truth": ({"reward_model": {"style": "rule"}}, "reward_model is struct"),
    "extra_info a list": ({"extra_info": ["x"]}, "extra_info is list"),
    "data source a number": ({"data_source": 3}, "data_source is int64"),
    "agent a number": ({"agent_name": 3}, "agent_name is int64"),
    "all rows null": ({"extra_info": None}, ""),
    "a list of ground truths": (truth(["x"]), ""),
}


@pytest.mark.parametrize("name", TYPES)
def test_types_of_the_columns_are_those_that_verl_reads(tmp_path, name):
    changes, message = TYPES[name]
    schema = open_as_verl(write(tmp_path / "a.parquet", [row(0) | changes])).schema
    found = [message for _, _, message in column_remarks(schema)]
    assert [message in text for text in found] == ([True] if message else [])


def test_columns_that_verl_uses_itself_are_refused():
    def levels(name):
        columns = ["prompt", "data_source", "reward_model", "extra_info"]
        schema = pa.schema([(column, pa.null()) for column in dict.fromkeys([*columns, name])])
        found = list(column_remarks(schema))
        assert all(name in message for _, _, message in found)
        return [level for _, level, _ in found]

    assert all(levels(name) == [Level.ERROR] for name in RESERVED_COLUMNS)
    assert {"responses", "input_ids", "attention_mask", "position_ids", "response_mask", "prompts", "output"} <= {
        *RESERVED_COLUMNS
    }
    assert levels("uid") == levels("raw_prompt") == [Level.WARNING]
    assert levels("ability") == levels("agent_name") == levels("index") == levels("answer") == []


def test_the_column_of_the_prompts_may_have_the_name_that_verl_gives_it():
    schema = pa.schema([(name, pa.null()) for name in ("raw_prompt", "data_source", "reward_model", "extra_info")])
    assert list(column_remarks(schema, "raw_prompt")) == []


def test_a_schema_with_a_name_twice_is_refused():
    names = ["prompt", "data_source", "reward_model", "extra_info", "x", "x"]
    [(_, level, message)] = column_remarks(pa.schema([(name, pa.null()) for name in names]))
    assert level is Level.ERROR and "x" in message


def test_every_door_takes_the_pattern_that_verl_takes(tmp_path):
    (tmp_path / "of a run").mkdir()
    names = [write(tmp_path / "of a run" / f"{name}.parquet", clean(name, 3)) for name in ("a", "b")]
    other, pattern = write(tmp_path / "c.parquet", clean("c", 3)), tmp_path / "of a run" / "*.parquet"
    assert CheckOptions(train=(pattern,), test=(other,)).train == (*names,)
    assert EvalOptions(model="m", data=(other, pattern)).data == (other, *names)
    assert ContaminationOptions(other, (pattern,)).against == (*names,)
    for given, part in ((tmp_path / "of a run", "*.parquet"), (tmp_path / "none*.parquet", "no file matches")):
        for door in (
            lambda path: CheckOptions(train=(path,)),
            lambda path: EvalOptions(model="m", data=(path,)),
            lambda path: ContaminationOptions(other, (path,)),
        ):
            with pytest.raises(InvalidInputError) as raised:
                door(given)
            assert part in str(raised.value)
