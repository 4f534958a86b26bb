"""`verl-trgrpo eval` as a user meets it; evaluations with a model are in tests/evaluation."""

import pyarrow as pa
import pyarrow.parquet as pq

from verl_trgrpo.cli.main import main


def run(capsys, *words):
    code = main(["eval", *map(str, words)])
    return code, *capsys.readouterr()


def test_all_wrong_options_are_reported_at_once(capsys, tmp_path):
    code, out, error = run(capsys, "--model", "m", "--data", tmp_path / "no.parquet", "--k", 4, "--out", tmp_path / "o")
    assert (code, out) == (2, "")
    assert error.startswith("error: 2 problems:") and "no.parquet is not a file" in error and "temperature 0" in error
    assert not (tmp_path / "o").exists()


def test_a_missing_model_is_reported_before_any_work(capsys, tmp_path):
    row = {
        "data_source": "kk_3ppl",
        "prompt": [{"role": "user", "content": "?"}],
        "reward_model": {"ground_truth": "(1) Zoe is a knave"},
    }
    file = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([row]), file)
    code, _, error = run(capsys, "--model", tmp_path / "gone", "--data", file, "--out", tmp_path / "out")
    assert code == 2 and str(tmp_path / "gone") in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
