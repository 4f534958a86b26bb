"""`verl-trgrpo data` as a user meets it: output, exit codes, pipes."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.data import checked_files
from tests.data.checked_files import row
from verl_trgrpo.cli.main import main

ROOT = Path(__file__).parents[2]


def write(path, rows):
    return str(checked_files.write(path, rows))


@pytest.fixture
def train(tmp_path):
    return write(tmp_path / "train.parquet", [row(i) for i in range(20)])


@pytest.fixture
def test_file(tmp_path):
    return write(tmp_path / "test.parquet", [row(i, "test") for i in range(5)])


def test_check_prints_a_table_and_exits_with_0_where_all_is_well(capsys, train, test_file):
    assert main(["data", "check", "--train", train, "--test", test_file]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert any(line.startswith(f"{train}: 20 rows, train") for line in lines)
    assert ["overlap", "ok"] in [line.split() for line in lines]
    assert "0 errors, 0 warnings, 2 not checked" in lines
    assert "train.parquet: 100%" in captured.err, "the progress bar goes to stderr"


def test_check_exits_with_1_for_errors_and_for_warnings_where_strict(capsys, tmp_path, train):
    broken = write(tmp_path / "broken.parquet", [row(0, prompt=[{"role": "user", "content": ""}])])
    assert main(["data", "check", "--train", train, broken]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "prompt ERROR 1 broken.parquet row 0: message 0 (user) is empty" in printed
    warned = write(tmp_path / "warned.parquet", [row(0), row(0)])
    assert main(["data", "check", "--train", warned]) == 0
    assert main(["data", "check", "--train", warned, "--strict"]) == 1


def test_wrong_input_is_one_clear_error_and_exit_code_2(capsys, train):
    assert main(["data", "decontaminate", train, "--against", train]) == 2
    captured = capsys.readouterr()
    assert (
        captured.out == "" and captured.err == f"error: {Path(train).resolve()} is given twice; name each file once\n"
    )


def test_an_external_module_registers_rewards_as_in_veRL(tmp_path, monkeypatch, capsys):  # noqa: N802
    (tmp_path / "my_family_of_rewards.py").write_text(
        "from verl_trgrpo.tasks import Score, register_reward\n"
        "@register_reward('my_family', reference_response=lambda gold: f'={gold}')\n"
        "def score(response, ground_truth, extra_info):\n"
        "    return Score(1.0, acc=float(response == f'={ground_truth}'))\n"
    )
    data = write(tmp_path / "data.parquet", [row(0, data_source="my_family")])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "no_such_module_here")
    assert main(["data", "check", "--train", data]) == 2
    assert "VERL_USE_EXTERNAL_MODULES=no_such_module_here" in capsys.readouterr().err
    environment = os.environ | {
        "VERL_USE_EXTERNAL_MODULES": "my_family_of_rewards",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
    }
    # A process of its own: registered is registered.
    result = command(["data", "check", "--train", data], environment)
    assert result.returncode == 0, result.stdout
    assert "reward of gold  ok" in result.stdout


def command(words, environment, **options):
    code = "import sys; from verl_trgrpo.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, timeout=600, check=False,
        **({"text": True} | options),
    )  # fmt: skip


def test_decontaminate_reports_then_writes(capsys, tmp_path, train):
    tests = write(tmp_path / "test.parquet", [row(3, "train"), row(4, "other")])
    assert main(["data", "decontaminate", train, "--against", tests]) == 1
    assert "1 of 20 train rows contaminated; 1 equal prompt" in capsys.readouterr().out
    assert not (tmp_path / "clean.parquet").exists()
    clean = str(tmp_path / "clean.parquet")
    assert main(["data", "decontaminate", train, "--against", tests, "--out", clean]) == 0
    assert "19 rows; dropped rows are in" in capsys.readouterr().out
    assert pq.read_table(clean).num_rows == 19
    assert (tmp_path / "clean.manifest.json").is_file()
    assert main(["data", "decontaminate", clean, "--against", tests]) == 0
    assert "0 of 19 train rows contaminated" in capsys.readouterr().out
    assert main(["data", "check", "--train", clean, "--test", tests]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "split", "reason"),
    [
        ("kk_test.parquet", "train", "its name is that of a test file"),
        ("a.parquet", "test", "its rows say split: test"),
    ],
)
def test_test_rows_among_those_to_train_on_are_a_warning(capsys, tmp_path, name, split, reason):
    path = write(tmp_path / name, [row(i, split) for i in range(3)])
    assert main(["data", "check", "--train", path]) == 0
    assert reason in capsys.readouterr().out
