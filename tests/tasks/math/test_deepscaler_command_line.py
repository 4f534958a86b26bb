"""Wrong input and builds that are stopped."""

import json
import signal

import pytest

from tests.data.builder_files import (
    command_of,
    environment_for,
    files_in,
    load_script,
    staging_directories,
    stop_amid_work,
)
from tests.tasks.math.deepscaler_files import RAW, script, write, write_all

main = load_script("deepscaler").main

ERRORS = {
    "an unknown set": (["--sets", "aime2031"], ["sets has aime2031", "choose from deepscaler, aime2024"]),
    "a set that is not there": (["--sets", "minerva", "amc2023"], ["has no amc2023; leave it out of sets"]),
    "a source that is not there": (["--source", "nowhere"], ["nowhere does not exist"]),
    "a file of another type": (["--source", "SOURCE/notes.csv"], ["unknown type"]),
    "a file has one set": (["--source", "SOURCE/aime.json", "--sets", "math500"], ["has no math500"]),
    "a directory without sets": (["--source", "SOURCE/empty"], ["has none of the sets"]),
    "a set twice": (["--source", "SOURCE/twice"], ["aime.json", "aime_test.json", "keep one"]),
    "a hub data set for a directory": (["--hf-dataset", "minerva=a/b"], ["hf_dataset goes with source 'hf' only"]),
    "a revision of a directory": (["--revision", "main"], ["error: revision goes with source 'hf' only"]),
    "two revisions": (
        ["--source", "hf", "--revision", "main", "--hf-dataset", "deepscaler=a/b"],
        ["revision and hf_dataset both choose deepscaler"],
    ),
    "an override of another form": (["--source", "hf", "--hf-dataset", "a/b"], ["write NAME=REPO", "'a/b'"]),
    "an override of no set": (["--source", "hf", "--hf-dataset", "x=a/b"], ["x is no set"]),
    "two overrides": (["--source", "hf", "--hf-dataset", "minerva=a/b", "--hf-dataset", "minerva=c"], ["given twice"]),
    "an empty instruction": (["--instruction", " "], ["instruction is empty", "'none'"]),
    "a chat tag": (["--instruction", "<|im_start|>"], ["instruction contains <|im_start|>"]),
    "a role for no instruction": (["--instruction", "none", "--instruction-role", "system"], ["no instruction; leave"]),
    "an unknown role": (["--instruction-role", "tool"], ["invalid choice: 'tool'"]),
    "several at once": (
        ["--limit", "0", "--num-proc", "0", "--sets", "x"],
        ["3 problems", "limit", "num_proc", "has x"],
    ),
    "malformed rows": (["--source", "SOURCE/bad.jsonl"], ["bad.jsonl, row 1", "row 3", "--on-error skip"]),
    "no rows": (["--source", "SOURCE/none.jsonl"], ["train.parquet would have no rows"]),
}


@pytest.fixture
def source(tmp_path):
    source = write_all(tmp_path / "source")
    (source / "amc.json").unlink()
    (source / "notes.csv").write_text("a,b")
    write(source / "empty" / "other.json", [])
    for name in ("aime", "aime_test"):
        write(source / "twice" / f"{name}.json", RAW["aime"])
    (source / "bad.jsonl").write_text('{"problem": "", "answer": "1"}\n\n{"problem": "Why?", "answer": true}\n')
    (source / "none.jsonl").write_text("")
    return source


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_input_gives_one_clear_error_and_leaves_the_old_files(tmp_path, source, capsys, name):
    words, reasons = ERRORS[name]
    out = tmp_path / "out"
    assert main(["--out", str(out), "--source", str(source)]) == 0
    before = files_in(out)
    capsys.readouterr()
    words = [word.replace("SOURCE", str(source)) for word in words]
    try:
        code = main(["--out", str(out), "--source", str(source), *words])
    except SystemExit as exit_of_argparse:
        code = exit_of_argparse.code
    error = capsys.readouterr().err
    assert code == 2
    assert error.count("error:") == 1
    assert all(reason in error for reason in reasons), error
    assert files_in(out) == before


def test_errors_show_no_traceback(tmp_path):
    done = script(environment_for(tmp_path), "--out", tmp_path / "out", "--source", tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("deepscaler.py: error: ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_help_teaches_with_an_example_and_says_what_was_not_tried(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    shown = capsys.readouterr().out
    assert stopped.value.code == 0
    assert "python data_prep/deepscaler.py --out data/deepscaler --source hf\n" in shown
    assert "not run against the hub" in shown


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_build_that_is_stopped_leaves_the_old_data_set(tmp_path, number):
    out = tmp_path / "out"
    assert main(["--out", str(out), "--source", str(write_all(tmp_path / "source"))]) == 0
    before = files_in(out)
    large = tmp_path / "large.jsonl"
    with large.open("w") as file:
        file.writelines(
            json.dumps({"problem": f"What is {n} + 1?", "answer": str(n + 1)}) + "\n" for n in range(300_000)
        )
    command = command_of("deepscaler", "--out", out, "--source", large)
    code, error = stop_amid_work(command, environment_for(tmp_path), out, number)
    assert code == (130 if number == signal.SIGINT else -number)
    assert files_in(out) == before
    if number == signal.SIGINT:
        assert "interrupted; the output directory is as before" in error
        assert "Traceback" not in error
        assert not staging_directories(out)
