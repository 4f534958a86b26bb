"""Errors, repeated builds and builds that are stopped."""

import signal

import pytest

from tests.data.builder_files import command_of, files_in, rows_of, staging_directories, stop_amid_work
from tests.tasks.knights_and_knaves.kk_files import arguments, script

ERRORS = {
    "one person": (["--people", "1"], ["people is [1]", "2 to 8"]),
    "nine people": (["--people", "3", "9"], ["people is [3, 9]"]),
    "a size twice": (["--people", "3", "3"], ["give each number once"]),
    "no train puzzles": (["--train", "0"], ["train is 0", "at least 1"]),
    "no test puzzles": (["--test", "-4"], ["test is -4"]),
    "more than exist for 2": (["--people", "2", "--train", "600"], ["make 603", "only 95", "leave 2 out"]),
    "more than exist for 3": (["--people", "4", "3", "--train", "15086"], ["make 15089", "only 15088"]),
    "generated puzzles without counts": (["--people", "3", "--no-counts"], ["train is missing", "test is missing"]),
    "no people": (["--no-people"], ["people is []"]),
    "paper and sizes": (["--paper"], ["leave out people, train, test"]),
    "paper and mix": (["--no-people", "--no-counts", "--paper", "--mix", "3=4"], ["leave out mix"]),
    "mix and people": (["--mix", "3=4"], ["mix takes the place of people and train"]),
    "a size twice in a mix": (["--no-people", "--mix", "3=4", "3=5", "--test", "2"], ["give each number once"]),
    "an empty mix": (["--mix", "3=0", "4=-1"], ["train is -1", "train is 0"]),
    "a mix in other words": (["--mix", "3:5"], ["'3:5' is not PEOPLE=COUNT, such as 3=1000"]),
    "upper bounds without a source": (["--at-most"], ["at_most goes with a source"]),
    "values of the common arguments": (
        ["--limit", "0", "--num-proc", "0"],
        ["limit is 0", "num_proc is 0"],
    ),
    "a missing file": (["--source", "nowhere.jsonl"], ["nowhere.jsonl does not exist"]),
    "file and generator": (["--source", "generate", "x.jsonl"], ["give 'generate', 'hf' or one or more files"]),
    "test file without files": (["--test-source", "x.jsonl"], ["test_source goes with files only"]),
    "revision without hf": (["--revision", "abc"], ["error: revision goes with source 'hf' only"]),
    "system without instructions": (["--prompt", "short", "--system"], ["no instructions"]),
    "several at once": (
        ["--people", "1", "--train", "0", "--source", "x.parquet"],
        ["3 problems", "[1]", "train is 0", "x.parquet does not"],
    ),
    "unknown style": (["--prompt", "long"], ["invalid choice: 'long'"]),
    "not a number": (["--people", "three"], ["invalid int value: 'three'"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_arguments_give_one_clear_error_and_exit_code_2(kk, tmp_path, capsys, name):
    words, reasons = ERRORS[name]
    start = arguments(tmp_path / "out")
    for left_out, options in (("--no-people", ["--people"]), ("--no-counts", ["--train", "--test"])):
        if left_out in words:
            start = [word for i, word in enumerate(start) if not {word, start[i - 1]} & {*options}]
    try:
        code = kk.main([*start, *(word for word in words if not word.startswith("--no-"))])
    except SystemExit as exit_of_argparse:
        code = exit_of_argparse.code
    error = capsys.readouterr().err
    assert code == 2
    assert error.count("error:") == 1
    assert all(reason in error for reason in reasons), error
    assert not (tmp_path / "out").exists()


SOURCE_ERRORS = {
    "empty file": ("kk.jsonl", "", "has no rows"),
    "missing columns": ("kk.jsonl", '{"quiz": "Who?"}', "kk.jsonl, row 1: missing names, solution, statements"),
    "not JSON": ("kk.json", "quiz", "is not JSON"),
    "not parquet": ("kk.parquet", "quiz", "is not a parquet file"),
    "another type": ("kk.csv", "quiz", "unknown type"),
}


@pytest.mark.parametrize("name", SOURCE_ERRORS)
def test_wrong_sources_give_one_clear_error_and_leave_the_old_files(kk, tmp_path, capsys, name):
    file_name, text, reason = SOURCE_ERRORS[name]
    (tmp_path / file_name).write_text(text)
    out = tmp_path / "out"
    assert kk.main(arguments(out)) == 0
    before = files_in(out)
    capsys.readouterr()
    assert kk.main(arguments(out, "--source", tmp_path / file_name)) == 2
    error = capsys.readouterr().err
    assert error.count("error:") == 1
    assert reason in error
    assert files_in(out) == before


def test_an_output_that_cannot_be_written(kk, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert kk.main(arguments(tmp_path / "file" / "out")) == 2
    assert f"cannot write to {tmp_path / 'file' / 'out'}" in capsys.readouterr().err
    (tmp_path / "out" / "test.parquet").mkdir(parents=True)
    assert kk.main(arguments(tmp_path / "out", "--force")) == 2
    assert "test.parquet is a directory" in capsys.readouterr().err


def test_errors_show_no_traceback(tmp_path, environment):
    done = script(environment, *arguments(tmp_path / "out", people="1"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kk.py: error: people is [1]")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_build_that_is_stopped_leaves_the_old_data_set(kk, tmp_path, environment, number):
    out = tmp_path / "kk"
    assert kk.main(arguments(out)) == 0
    before = files_in(out)
    command = command_of("kk", *arguments(out, people="8", train="1000000"))
    code, error = stop_amid_work(command, environment, out, number)
    assert files_in(out) == before
    if number == signal.SIGINT:
        assert code == 130
        assert "interrupted; the output directory is as before" in error
        assert not staging_directories(out)
    else:
        assert code == -signal.SIGKILL
        # What the killed build left does not disturb the next one.
        assert kk.main(arguments(out, "--force")) == 0
        assert files_in(out) == before


def test_help_says_that_counts_are_per_size(kk, capsys):
    with pytest.raises(SystemExit):
        kk.main(["--help"])
    assert capsys.readouterr().out.count("PER number of people") == 2


def test_the_same_arguments_are_not_built_twice(kk, tmp_path, capsys):
    out = tmp_path / "kk"
    assert kk.main(arguments(out)) == 0
    before, time_before = files_in(out), (out / "train.parquet").stat().st_mtime_ns
    capsys.readouterr()
    assert kk.main(arguments(out)) == 0
    assert "already has this data set" in capsys.readouterr().out
    assert (out / "train.parquet").stat().st_mtime_ns == time_before
    assert kk.main(arguments(out, "--force")) == 0
    assert (out / "train.parquet").stat().st_mtime_ns > time_before
    assert files_in(out) == before


@pytest.mark.parametrize(
    "disturb",
    [
        lambda out: (out / "test.parquet").unlink(),
        lambda out: (out / "train.parquet").write_bytes(b"cut off"),
        lambda out: (out / "manifest.json").write_text(
            (out / "manifest.json").read_text().replace('"package_version": "', '"package_version": "older-')
        ),
    ],
    ids=["file gone", "file changed", "older version"],
)
def test_a_data_set_that_is_not_as_recorded_is_built_again(kk, tmp_path, disturb):
    assert kk.main(arguments(tmp_path)) == 0
    before = files_in(tmp_path)
    disturb(tmp_path)
    assert files_in(tmp_path) != before
    assert kk.main(arguments(tmp_path)) == 0
    assert files_in(tmp_path) == before


def test_other_arguments_replace_the_data_set(kk, tmp_path):
    assert kk.main(arguments(tmp_path)) == 0
    assert kk.main(arguments(tmp_path, train="8")) == 0
    assert len(rows_of(tmp_path / "train.parquet")) == 8


def test_data_files_of_unknown_origin_are_not_replaced_unless_forced(kk, tmp_path, capsys):
    (tmp_path / "train.parquet").write_text("somebody's work")
    assert kk.main(arguments(tmp_path)) == 2
    assert "has train.parquet, but no manifest.json" in capsys.readouterr().err
    assert files_in(tmp_path) == {"train.parquet": b"somebody's work"}
    assert kk.main(arguments(tmp_path, "--force")) == 0
    assert len(rows_of(tmp_path / "train.parquet")) == 6
