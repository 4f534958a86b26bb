"""Rows of data files: their layout, how they are read and checked, and when two prompts are equal."""

import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.checked_files import row, write
from verl_trgrpo.data.rows import (
    UnreadableFileError,
    arrow_schema,
    build_row,
    normalize_text,
    read_schema,
    row_keys,
)
from verl_trgrpo.data.verl_files import read_rows


def good_row():
    return build_row(
        data_source="kk_3ppl",
        prompt=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is a knight?"}],
        ability="logic",
        ground_truth="(1) Zoey is a knight",
        extra_info={"index": 4, "split": "train", "n_people": 3},
        columns={"agent_name": "searcher"},
    )


def test_a_built_row_has_the_layout_that_verl_reads():
    assert good_row() == {
        "data_source": "kk_3ppl",
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is a knight?"}],
        "ability": "logic",
        "reward_model": {"style": "rule", "ground_truth": "(1) Zoey is a knight"},
        "extra_info": {"index": 4, "split": "train", "n_people": 3},
        "agent_name": "searcher",
    }
    schema = arrow_schema([pa.field("n_people", pa.int64())], columns=[pa.field("agent_name", pa.string())])
    assert pa.Table.from_pylist([good_row()], schema=schema).to_pylist() == [good_row()]


def test_columns_are_read_by_name_and_a_file_that_is_not_parquet_is_an_error(tmp_path):
    path = write(tmp_path / "a.parquet", [row(0) | {"image": b"x"}] * 1500)
    assert (schema := read_schema(path))[1] == 1500 and "image" in schema[0].names
    assert [*read_rows(path, ["image", "nowhere"])] == [{"image": b"x"}] * 1500
    assert "image" not in next(read_rows(path)) and "image" in next(read_rows(path, None))
    (tmp_path / "b.parquet").write_text("{}")
    for name in ("b.parquet", "nowhere.parquet"):
        with pytest.raises(UnreadableFileError, match=name):
            next(read_rows(tmp_path / name))


def test_a_column_that_stands_twice_is_named(tmp_path):
    pq.write_table(pa.table([["a"], ["b"], ["c"]], names=["problem", "answer", "answer"]), tmp_path / "a.parquet")
    with pytest.raises(UnreadableFileError, match=r"a\.parquet has several columns named answer"):
        next(read_rows(tmp_path / "a.parquet", None))


EQUAL = {
    "case": ("Find x.", "FIND X."),
    "white space": ("Find x.", " Find\n\t x. "),
    "no-break space": ("Find x.", "Find\u00a0x."),
    "full width": ("Find x.", "Ｆｉｎｄ ｘ．"),
    "ligature": ("Find five", "Find ﬁve"),
    "sharp s": ("STRASSE", "straße"),
    "composed": ("café", "cafe\u0301"),
}
DIFFERENT = {"sign": ("x+1", "x-1"), "full stop": ("Find x", "Find x."), "accent": ("cafe", "café")}


@pytest.mark.parametrize("name", [*EQUAL, *DIFFERENT])
def test_equality_after_normalization(name):
    one, other = (EQUAL | DIFFERENT)[name]
    assert (normalize_text(one) == normalize_text(other)) == (name in EQUAL)


@given(st.text())
def test_normalized_text_is_canonical(text):
    once = normalize_text(text)
    assert normalize_text(once) == once
    assert unicodedata.is_normalized("NFKC", once)
    assert normalize_text(f" {text}\n") == once
    assert "  " not in once and once == once.strip()


def test_the_key_of_a_prompt_is_its_conversation_without_the_system():
    system, asked, answer = ({"role": role, "content": role.upper()} for role in ("system", "user", "assistant"))
    assert row_keys({"prompt": [system, asked, answer, asked]}) == ("text:user assistant user",)
    assert row_keys({"prompt": [system]}, "k") == ("text:system", "k")
    for odd in (None, "x", [], ["x"], [{"role": "user"}], [{"content": 3}]):
        assert row_keys({"prompt": odd}) == ()
