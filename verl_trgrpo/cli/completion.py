"""Print a script that makes a shell complete commands, their options, files, and the algorithm switch.

examples:
  verl-trgrpo completion bash >> ~/.bashrc
  verl-trgrpo completion zsh >> ~/.zshrc

The script is made from the commands' own help, so make it again after an upgrade.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_trgrpo.common.options import parse_options

# In the script, word by word: commands of one and of two words, then options of the command, words of Hydra, or files.
_SCRIPT = """\
_verl_trgrpo() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" first="${{COMP_WORDS[1]-}}" second="${{COMP_WORDS[2]-}}" words="" key=""
    if ((COMP_CWORD == 1)); then
        words="{first}"
    else
        case "$first" in
{groups}
        esac
        case "$first $second" in
{commands}
        esac
    fi
    # Bash takes "=" for a word of its own; what stands before it is there already.
    if [[ $current == "=" ]]; then
        key="${{COMP_WORDS[COMP_CWORD - 1]}}=" current=""
    elif ((COMP_CWORD > 1)) && [[ ${{COMP_WORDS[COMP_CWORD - 1]}} == "=" ]]; then
        key="${{COMP_WORDS[COMP_CWORD - 2]}}="
    fi
    key="${{key#+}}"  # as stock veRL wants groups
    # Behind an option its value: a file, as far as is known here.
    if [[ $current != -* && ${{COMP_WORDS[COMP_CWORD - 1]}} == --* ]]; then
        words=""
    fi
    COMPREPLY=($(compgen -W "$words" -- "$key$current"))
    COMPREPLY=("${{COMPREPLY[@]#"$key"}}")
    if ((${{#COMPREPLY[@]}} == 0)) || [[ -z ${{COMPREPLY[0]}} ]]; then
        COMPREPLY=($(compgen -f -- "$current"))
    elif [[ -z $key && $current != -* && $words == --* ]] && ((COMP_CWORD > 1)); then
        COMPREPLY+=($(compgen -f -- "$current"))
    fi
}}
complete -o filenames -F _verl_trgrpo verl-trgrpo
"""
_ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"
_TAKE_HYDRA = ("train", "validate", "preview", "quickstart", "small-lm", "search demo")


@dataclass(frozen=True)
class CompletionOptions:
    """For which shell.

    Args:
        shell: bash or zsh.
    """

    shell: Literal["bash", "zsh"]


def run(words: Sequence[str]) -> int:
    options = parse_options(CompletionOptions, "verl-trgrpo completion", __doc__, words, ("shell",))
    print((_ZSH if options.shell == "zsh" else "") + script(), end="")
    return 0


def script() -> str:
    """The script for bash, which zsh takes as well after bashcompinit."""
    from verl_trgrpo.cli.main import COMMANDS

    first = list(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS))
    groups = {name: [other.partition(" ")[2] for other in COMMANDS if other.startswith(f"{name} ")] for name in first}
    algorithms = [
        f"algorithm={path.stem}" for path in sorted((Path(__file__).parents[1] / "config/algorithm").glob("*.yaml"))
    ]
    shapings = [
        f"shaping={path.stem}" for path in sorted((Path(__file__).parents[1] / "config/shaping").glob("*.yaml"))
    ]
    commands = []
    for name in COMMANDS:
        words = _flags(name) + (algorithms + shapings if name in _TAKE_HYDRA else [])
        commands.append(f'            "{name}{"" if " " in name else " "}"*) words="{" ".join(words)}" ;;')
    return _SCRIPT.format(
        first=" ".join([*first, "--help", "--version"]),
        groups="\n".join(
            f'            {name}) words="{" ".join(below)}" ;;' for name, below in groups.items() if below
        ),
        commands="\n".join(commands),
    )


def _flags(command: str) -> list[str]:
    """The options that a command's help names."""
    from verl_trgrpo.cli.main import main

    if command == "completion":
        return ["bash", "zsh"]
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main([*command.split(), "--help"])
    # Those at the beginning of a line of the list of options; examples may name others.
    return list(dict.fromkeys(re.findall(r"(?m)^[│|\s]*(?:-h, )?(--[a-z][a-z-]*)", text.getvalue())))
