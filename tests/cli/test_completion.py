"""The completion script in a real bash."""

import shutil
import subprocess

import pytest

from verl_trgrpo.cli.main import COMMANDS, main

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")

PROGRAM = """
source "$0"
function=$(complete -p verl-trgrpo) && function=${function#*-F } && function=${function%% *}
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
$function verl-trgrpo "${COMP_WORDS[COMP_CWORD]}" ""
printf "%s\\n" "${COMPREPLY[@]}"
"""


def test_commands_groups_options_and_files_are_completed(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    (tmp_path / "script.sh").write_text(script)

    def complete(*words):
        command = ["bash", "--norc", "-c", PROGRAM, "script.sh", "verl-trgrpo", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()

    assert complete("va") == ["validate"]
    assert {name.split()[0] for name in COMMANDS} <= {*complete("")}
    assert {"check", "decontaminate"} <= {*complete("data", "")}
    assert complete("data", "check", "--tr") == ["--train"]
    assert complete("train", "--recipe", "scr") == ["script.sh"]
    assert "complete -o default -F" in script, "bash completes file names where the script has no answer"


def test_the_shell_is_checked(capsys):
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("#compdef verl-trgrpo")
    assert main(["completion", "csh"]) == 2
