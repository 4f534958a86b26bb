"""`show_rows`: which rows, how they read, and that a hostile file cannot drive the terminal."""

import sys
import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_trgrpo.data.show import MAX_CHARS, MAX_LINES, ShowOptions, escape, show_rows


def row(i, content="A question\nin two lines", source="math"):
    return {
        "data_source": source,
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}],
        "reward_model": {"style": "rule", "ground_truth": f"truth {i}"},
        "extra_info": {"index": 100 + i, "split": "train", "note": None},
        "ability": "math",
    }


@pytest.fixture
def show(tmp_path):
    def show(data=None, **options):
        path = tmp_path / "data.parquet"
        data = data or [row(i, source="kk" if i % 2 else "math") for i in range(10)]
        pq.write_table(pa.Table.from_pylist(data), path)
        return list(show_rows(ShowOptions(path, **options)))

    return show


def positions(shown):
    return [int(text.split(" ")[2]) for text in shown]


def test_a_row_reads_like_a_conversation(show):
    (text,) = show(data=[row(0)])
    assert text == (
        "=== row 0 of 1 | data source math ===\n--- system\nBe brief.\n--- user\nA question\nin two lines\n"
        "--- ground truth\ntruth 0\n--- extra_info\nindex: 100\nsplit: train\nnote: None\n"
        "--- other columns\nability: math\n"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 1, 2]),
        ({"rows": 1}, [0]),
        ({"rows": 50}, list(range(10))),
        ({"start": 8}, [8, 9]),
        ({"index": 105}, [5]),
        ({"data_source": "kk"}, [1, 3, 5]),
        ({"data_source": "kk", "start": 3}, [7, 9]),
        ({"data_source": "math", "index": 104}, [4]),
    ],
)
def test_the_rows_asked_for_are_shown(show, options, expected):
    assert positions(show(**options)) == expected


@pytest.mark.parametrize("options", [{"start": 10}, {"index": 5}, {"data_source": "x"}])
def test_no_fitting_row_is_an_error(show, options):
    with pytest.raises(ValueError, match="none of which fits"):
        show(**options)


def test_wrong_options_are_reported_together(tmp_path):
    with pytest.raises(ValueError, match=r"not a file(.|\n)*rows is 0(.|\n)*start is -1"):
        ShowOptions(tmp_path / "none.parquet", rows=0, start=-1)
    (tmp_path / "x.parquet").write_text("x")
    with pytest.raises(ValueError, match="not a readable parquet file"):
        list(show_rows(ShowOptions(tmp_path / "x.parquet")))


@pytest.mark.parametrize("content", ["x" * (MAX_CHARS + 7), "\n".join("y" * (MAX_LINES + 7))])
def test_long_texts_are_cut_and_say_so(show, content):
    (text,) = show(data=[row(0, content)])
    assert content not in text
    assert "more characters; --full shows them]" in text
    (full,) = show(data=[row(0, content)], full=True)
    assert content in full and "more characters" not in full


def test_the_number_of_characters_left_out_is_right(show):
    (text,) = show(data=[row(0, "x" * (MAX_CHARS + 7))])
    assert "[7 more characters" in text


HOSTILE = "\x1b]0;owned\x07 \x1b[2J \x9b31m \r over \u202e left \u2066 \x00 \x7f \u2028 \b\ufeff"


def test_a_hostile_file_cannot_drive_the_terminal(show):
    evil = row(0, HOSTILE, source=HOSTILE)
    evil["prompt"][0]["role"] = HOSTILE
    evil["reward_model"]["ground_truth"] = HOSTILE
    evil["extra_info"] |= {"note": HOSTILE, HOSTILE: HOSTILE, "list": [HOSTILE]}
    evil[HOSTILE] = HOSTILE
    (text,) = show(data=[evil])
    assert all(char == "\n" or char.isprintable() for char in text), text
    assert r"\x1b]0;owned\x07" in text


@given(st.text())
def test_escaped_text_has_no_character_that_acts(text):
    escaped = escape(text)
    assert not [
        c for c in escaped if c != "\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    ]
    if text.isprintable():
        assert escaped == text


def test_plain_text_of_all_languages_is_left_alone():
    text = "Ω ≤ ∑ 数学 مرحبا naïve 🎲"
    assert escape(text) == text


@pytest.mark.parametrize(
    "odd",
    [
        {"prompt": "a text"},
        {"prompt": None},
        {"prompt": ["a text"]},
        {"prompt": [None]},
        {"prompt": []},
        {"prompt": [{"role": None, "content": None}]},
        {"reward_model": None},
        {"extra_info": None},
        {"data_source": None},
        {"data_source": 3},
    ],
)
def test_odd_rows_are_shown_all_the_same(show, odd):
    (text,) = show(data=[row(0) | odd])
    assert text.startswith("=== row 0 of 1")
    if "a text" in repr(odd):
        assert "a text" in text


def test_the_chat_template_is_shown_as_rendered(show, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}{% if add_generation_prompt %}[go]{% endif %}"
    transformers.PreTrainedTokenizerFast(tokenizer_object=model, chat_template=template).save_pretrained(tmp_path / "m")
    (text,) = show(data=[row(0)], tokenizer=tmp_path / "m")
    assert "--- chat template (10 tokens)\n[system] Be brief. [user] A question\nin two lines [go]\n" in text
    (refused,) = show(data=[row(0) | {"prompt": [{"role": "user", "content": 3}]}], tokenizer=tmp_path / "m")
    assert "chat template" in refused and sys.exc_info()[0] is None
