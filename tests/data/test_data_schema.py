import pyarrow as pa
import pytest

from verl_trgrpo.data.schema import arrow_schema, build_row, check_rows


def good_row(index=0):
    return build_row(
        data_source="kk_3ppl",
        prompt=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is a knight?"}],
        ability="logic",
        ground_truth="(1) Zoey is a knight",
        extra_info={"index": index, "split": "train", "n_people": 3},
    )


def test_rows_have_the_layout_that_verl_reads():
    assert good_row(4) == {
        "data_source": "kk_3ppl",
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is a knight?"}],
        "ability": "logic",
        "reward_model": {"style": "rule", "ground_truth": "(1) Zoey is a knight"},
        "extra_info": {"index": 4, "split": "train", "n_people": 3},
    }


def test_good_rows_pass_and_fit_the_arrow_schema():
    rows = [good_row(0), good_row(1)]
    check_rows(rows)
    table = pa.Table.from_pylist(rows, schema=arrow_schema([pa.field("n_people", pa.int64())]))
    assert table.to_pylist() == rows


def test_bad_rows_are_refused_with_their_position():
    bad = good_row(1) | {"prompt": []}
    accepting = good_row(2) | {"reward_model": {"ground_truth": {"target": ["", "a"]}}}
    with pytest.raises(ValueError, match=r"row 1: the prompt is \[\].*row 2: .*accepts an empty answer") as caught:
        check_rows([good_row(0), bad, accepting])
    assert "row 0" not in str(caught.value)
    with pytest.raises(ValueError, match="and 3 more"):
        check_rows([bad] * 8)
