"""`verl-trgrpo eval` as a user meets it; evaluations with a model are in tests/evaluation."""

import pyarrow as pa
import pyarrow.parquet as pq

from verl_trgrpo.cli.main import main


def test_a_missing_model_is_reported_before_any_work(capsys, tmp_path):
    row = {
        "data_source": "kk_3ppl",
        "prompt": [{"role": "user", "content": "?"}],
        "reward_model": {"ground_truth": "(1) Zoe is a knave"},
    }
    file = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([row]), file)
    words = ["eval", "--model", str(tmp_path / "gone"), "--data", str(file), "--out", str(tmp_path / "out")]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / "gone") in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
