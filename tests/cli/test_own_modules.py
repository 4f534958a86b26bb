"""Modules of one's own in the working directory: every command finds them, with nothing else set.

The commands that start vLLM or Ray are in tests/cluster/test_own_task.py.
"""

import pytest

from tests.own_modules import SHAPING, data_files, program
from verl_trgrpo.checks.files import module_findings
from verl_trgrpo.cli.main import main
from verl_trgrpo.demos.puzzles import CHECKPOINT

VALIDATE = (
    "validate", "kk_quickstart", "platform=cpu", "data.train_files=train.parquet", "data.val_files=test.parquet",
    f"actor_rollout_ref.model.path={CHECKPOINT}", "data.max_prompt_length=256", "actor_rollout_ref.rollout.max_model_len=512",
)  # fmt: skip
CHECK = ("data", "check", "--train", "train.parquet", "--test", "test.parquet")


@pytest.fixture
def directory(tmp_path):
    return data_files(tmp_path)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ((*VALIDATE, *SHAPING), "no errors"),
        (CHECK, "reward of gold  ok"),
        ((*CHECK, "--tokenizer", CHECKPOINT), "chat template   ok"),
        (("doctor",), "ok    own modules                    my_task"),
    ],
    ids=["validate", "data check", "data check --tokenizer", "doctor"],
)
def test_a_command_finds_a_module_of_the_working_directory(directory, words, shown):
    done = program(directory, *words)
    assert shown in done.stdout and "No module named" not in done.stdout + done.stderr, done
    assert done.returncode == 0 or words == ("doctor",), done.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_library_here", "No module named 'no_such_library_here'"),
        ("raise RuntimeError('my own mistake')", "my own mistake"),
    ],
)
def test_doctor_blames_a_broken_module_of_the_users_own_and_no_package(directory, text, reason):
    (directory / "my_task.py").write_text(text)
    failed = [line for line in program(directory, "doctor").stdout.split("\n") if line.startswith("FAIL")]
    assert [line.split()[1:3] for line in failed if reason in line] == [["own", "modules"]], failed
    assert not [line for line in failed if "veRL sees" in line or "Hydra sees" in line], failed


@pytest.mark.parametrize("names", ["no_such_module_here", "json, json", "json,"])
def test_a_name_that_no_process_of_verl_could_import_is_an_error(directory, monkeypatch, capsys, names):
    """veRL splits the names at commas and strips nothing."""
    monkeypatch.chdir(directory)
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", names)
    wrong = f"VERL_USE_EXTERNAL_MODULES={names.rpartition(',')[2]}: "
    assert [each.message.startswith(wrong) for each in module_findings()] == [True]
    assert main(list(CHECK)) == 2 and wrong in capsys.readouterr().err


def test_a_file_of_the_working_directory_hides_no_package(directory):
    for name in ("json", "pyarrow", "transformers", "jinja2"):
        (directory / f"{name}.py").write_text("raise ImportError('hidden')")
    done = program(directory, *CHECK, "--tokenizer", CHECKPOINT)
    assert done.returncode == 0 and "chat template   ok" in done.stdout, done
