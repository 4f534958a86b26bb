"""`show_rows`: which rows, how they read, and that a hostile file cannot drive the terminal."""

import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_trgrpo.data.show import ShowOptions, escape, show_rows


def row(i, content="A question\nin two lines"):
    return {
        "data_source": "math",
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}],
        "reward_model": {"style": "rule", "ground_truth": f"truth {i}"},
        "extra_info": {"index": 100 + i},
    }


def show(directory, data, **options):
    pq.write_table(pa.Table.from_pylist(data), directory / "data.parquet")
    return list(show_rows(ShowOptions(directory / "data.parquet", **options)))


def test_a_row_reads_like_a_conversation_and_the_rows_asked_for_are_shown(tmp_path):
    data = [row(i) for i in range(10)]
    (text,) = show(tmp_path, data, index=105)
    assert text == (
        "--- data source\nmath\n--- system\nBe brief.\n--- user\nA question\nin two lines\n--- ground truth\ntruth 5\n"
    )
    assert [shown.splitlines()[-1] for shown in show(tmp_path, data, rows=2)] == ["truth 0", "truth 1"]
    (tmp_path / "x.parquet").write_text("x")
    with pytest.raises(ValueError, match="not a readable parquet file"):
        list(show_rows(ShowOptions(tmp_path / "x.parquet")))


HOSTILE = "\x1b]0;owned\x07 \x1b[2J \x9b31m \r over \u202e left \u2066 \x00 \x7f \u2028 \b\ufeff"


def test_a_hostile_file_cannot_drive_the_terminal(tmp_path):
    evil = row(0, HOSTILE) | {"data_source": HOSTILE, "reward_model": {"ground_truth": [HOSTILE]}}
    evil["prompt"][0]["role"] = HOSTILE
    (text,) = show(tmp_path, [evil])
    assert all(char == "\n" or char.isprintable() for char in text), text
    assert r"\x1b]0;owned\x07" in text


@given(st.text())
def test_escaped_text_has_no_character_that_acts(text):
    acting = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    escaped = escape(text)
    assert not [c for c in escaped if c not in "\n\t" and unicodedata.category(c) in acting]
    if text.isprintable():
        assert escaped == text


@pytest.mark.parametrize("odd", [{"prompt": "a text"}, {"prompt": None}, {"prompt": []}, {"extra_info": None}])
def test_odd_rows_are_shown_all_the_same(tmp_path, odd):
    assert len(show(tmp_path, [row(0) | odd])) == 1
