"""Commands that the package and its pages print can be typed: each goes through the real parser, from the shell as it is."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import composed
from tests.messages import modules, text_of
from verl_trgrpo.cli import data, main
from verl_trgrpo.cli.quickstart import QuickstartOptions, next_steps
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.common.options import parse_options
from verl_trgrpo.common.text import COMMAND_WORDS, typeable
from verl_trgrpo.config import OWN_CONFIGS
from verl_trgrpo.shell.starts import is_script

ROOT = Path(__file__).parents[2]
BEGIN = re.compile(rf"(?<![\w/.-])verl-trgrpo (?:{'|'.join(COMMAND_WORDS)})\b")
# A command stands between backquotes, or ends a line that it begins or that names it; two spaces divide it from a remark.
IN_TEXT = re.compile(rf"`({BEGIN.pattern}[^`]*)`")
ON_A_LINE = re.compile(rf"(?:^|  )({BEGIN.pattern}.*?)(?:   *\S.*)?$", re.MULTILINE)


def printed() -> dict[str, str]:
    """Every command in a text of the package, and where it stands; values of a text are ``x``."""
    found: dict[str, str] = {}
    for place, tree in modules():
        inner = {child for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.BinOp) for child in ast.walk(node)
                 if child is not node}  # fmt: skip
        for node in ast.walk(tree):
            if node in inner or not (text := text_of(node)) or not BEGIN.search(text):
                continue
            text = text.replace("``", "`").replace("{}", "x")
            text = re.sub(r"\\\n\s*", "", text)
            rest = ON_A_LINE.sub("", IN_TEXT.sub("", text))
            assert not re.search(rf"{BEGIN.pattern}.* (?:--\w|\w+=)", rest), (
                f"{place}:{node.lineno}: {rest!r} lacks backquotes"
            )
            commands = [*IN_TEXT.findall(text), *ON_A_LINE.findall(text), *BEGIN.findall(rest)]
            found |= dict.fromkeys(commands, f"{place}:{node.lineno}")
    return found


def of_pages() -> dict[str, str]:
    """Every command in a block for bash of README.md and the pages."""
    found = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for block in re.findall(r"```(?:bash|sh)\n(.*?)```", page.read_text(), re.DOTALL):
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                line = re.sub(r"(?:^|\s+)# .*$", "", line)
                found |= dict.fromkeys(re.findall(rf"{BEGIN.pattern}[^;&|]*", line), page.name)
    return found


NO_FILE = re.compile(r"is not a file|is not a directory|does not exist|is not a finished index")


class ParsedError(Exception):
    """Carries the options of a command that was parsed, in place of the command's work."""


def check_parses(command: str, monkeypatch) -> None:
    def parse(*arguments):
        raise ParsedError(parse_options(*arguments))

    for module in (main, data):
        monkeypatch.setattr(module, "parse_options", parse)
    words = [word for word in shlex.split(re.split(r" [;&|]", command)[0])[1:] if word not in ("...", "TASK", "x")]
    if any(f"{name} ".startswith(f"{' '.join(words)} ") for name in [*main.COMMANDS, *main.commands()]):
        return  # the name of a command or of a group
    with pytest.raises((ParsedError, InvalidInputError)) as parsed:
        main._run(words)
    if not isinstance(parsed.value, ParsedError):  # the files of an example are somewhere else
        assert all(NO_FILE.search(message) for message in parsed.value.messages), parsed.value
        return
    options = parsed.value.args[0]
    if hasattr(options, "configuration") and not is_script(options.config):
        source, overrides = options.configuration()
        if source.startswith("recipes/") or (OWN_CONFIGS / f"{source}.yaml").is_file():
            composed(overrides, ROOT / source if "/" in source else source)
        else:
            assert source in ("CONFIG", "FILE", "mine.yaml"), source


PRINTED, PAGES = printed(), of_pages()


@pytest.mark.parametrize("command", [*PRINTED, *(command for command in PAGES if command not in PRINTED)])
def test_a_printed_command_is_what_the_parser_takes(command, monkeypatch):
    check_parses(command, monkeypatch)


def test_there_are_commands_to_type():
    assert len(PRINTED) > 40 and len(PAGES) > 25
    assert {name.split()[0] for name in main.COMMANDS} == {*COMMAND_WORDS}
    assert {
        command for command in main.COMMANDS if not any(f"verl-trgrpo {command} " in f"{line} " for line in PRINTED)
    } == set()


@pytest.mark.parametrize(
    "command",
    ["verl-trgrpo train --recipe mine.yaml", "verl-trgrpo search find", "verl-trgrpo validate nowhere",
     "verl-trgrpo train kk_quickstart trainer.nothing=1", "verl-trgrpo quickstart --algorithm grpo"],
)  # fmt: skip
def test_a_command_that_is_out_of_date_is_found(command, monkeypatch):
    with pytest.raises(BaseException) as error:
        check_parses(command, monkeypatch)
    assert not isinstance(error.value, ParsedError)


def test_a_shell_that_has_not_entered_the_environment_gets_the_paths(monkeypatch, tmp_path):
    options = QuickstartOptions(out=Path("runs/my tries"), seed=3)
    text, programs = next_steps(options, "grpo"), Path(sys.executable).parent
    assert typeable(text) == text
    monkeypatch.setenv("PATH", "")
    for here in (tmp_path, programs.parent):
        monkeypatch.chdir(here)
        lines = [re.split(r"  +", line)[-1] for line in typeable(text).splitlines()[1:]]
        # Below the current directory, unless the environment is a link to another place.
        below = here != tmp_path and here.resolve() == here
        assert len(lines) == 3 and all(line.startswith(programs.name if below else str(programs)) for line in lines)
        for line in lines[:2] if here == tmp_path else lines[:1]:
            ended = subprocess.run(["/bin/bash", "-c", f"{line} --help"], capture_output=True, text=True, cwd=here)
            assert ended.returncode == 0 and "usage: " in ended.stdout, ended.stderr
        trainer, _, _ = lines[2].partition(" -m verl.trainer.main_ppo")
        subprocess.run(
            ["/bin/bash", "-c", f"{trainer} -c 'import importlib.util as u; assert u.find_spec(\"verl\")'"], check=True
        )


@pytest.mark.parametrize(
    "text",
    [
        "verl-trgrpo 0.1.0",
        "data of verl-trgrpo",
        "pip is a program",
        "uv pip list",
        "the verl-trgrpo trainer",
        "/usr/bin/python -m verl.x",
    ],
)
def test_what_is_no_command_stays(text, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert typeable(text) == text
