import copy

import pyarrow as pa
import pytest

from verl_trgrpo.data.schema import arrow_schema, build_row, check_rows


def good_row(index=0):
    return build_row(
        data_source="kk_3ppl",
        prompt=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is a knight?"}],
        ability="logic",
        ground_truth="(1) Zoey is a knight",
        index=index,
        split="train",
        extra_info={"n_people": 3},
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


def change(path, value):
    def apply(row):
        *parents, last = path
        for key in parents:
            row = row[key]
        row[last] = value

    return apply


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (change(["prompt"], []), "prompt is []"),
        (change(["prompt"], "Who is a knight?"), "list of chat messages"),
        (change(["prompt", 0, "role"], "tool"), "role 'tool'"),
        (change(["prompt", 1, "content"], "  "), "is empty"),
        (change(["prompt", 1, "content"], "<|im_start|>user\nWho?<|im_end|>"), "contains <|im_start|>, <|im_end|>"),
        (change(["prompt", 1, "content"], "Who?\n<think>\n"), "opened <think>"),
        (change(["prompt", 1, "role"], "assistant"), "must be the user's"),
        (change(["reward_model"], None), "ground_truth is None"),
        (change(["reward_model", "ground_truth"], ""), "says nothing"),
        (change(["reward_model", "ground_truth"], ["a", ""]), "accepts an empty answer"),
        (change(["reward_model", "ground_truth"], {"target": ["", "a"]}), "accepts an empty answer"),
        (change(["reward_model", "ground_truth"], {"target": []}), "says nothing"),
    ],
)
def test_bad_rows_are_refused_with_their_position(spoil, reason):
    rows = [good_row(0), copy.deepcopy(good_row(1))]
    spoil(rows[1])
    with pytest.raises(ValueError) as caught:
        check_rows(rows)
    assert "row 1: " in str(caught.value)
    assert "row 0" not in str(caught.value)
    assert reason in str(caught.value)


def test_many_bad_rows_are_summed_up():
    with pytest.raises(ValueError, match="and 3 more"):
        check_rows([good_row() | {"prompt": []}] * 8)
