"""The completion script in a real bash."""

import shutil
import subprocess

import pytest

from verl_trgrpo.cli.completion import script
from verl_trgrpo.cli.main import COMMANDS, main

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "script.sh"
    path.write_text(script())

    def of(*words):
        program = (
            'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _verl_trgrpo; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        command = ["bash", "--norc", "-c", program, str(path), "verl-trgrpo", *words]
        return subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=True).stdout.split()

    return of


def test_commands_and_those_of_a_group(complete):
    assert complete("va") == ["validate"]
    assert {*complete("")} == {*(name.split()[0] for name in COMMANDS), "--help", "--version"}
    assert complete("data", "") == ["check", "decontaminate"]


def test_options_of_the_command(complete):
    assert complete("train", "--re") == ["--recipe"]
    assert complete("data", "check", "--tr") == ["--train"]
    assert "--radius" in complete("analyze", "--model", "x", "--")


def test_the_algorithm_switch_of_which_bash_makes_three_words(complete):
    assert complete("train", "algorithm", "=", "tr_grpo_p") == ["tr_grpo_published"]
    assert complete("train", "+algorithm", "=", "tr_grpo_p") == ["tr_grpo_published"]
    assert "linear" in complete("quickstart", "shaping", "=")


def test_files_where_nothing_else_fits(complete):
    assert complete("validate", "scr") == ["script.sh"]
    assert complete("train", "--recipe", "") == ["script.sh"]
    assert {"--out", "script.sh"} <= {*complete("export", "")}


def test_the_command_prints_it_for_both_shells(capsys):
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload") and main(["completion", "fish"]) == 2
