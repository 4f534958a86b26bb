"""``verl-trgrpo completion``: tyro's completion script for all commands."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, Literal, Union

import tyro


@dataclass(frozen=True)
class CompletionOptions:
    """Select the shell.

    Args:
        shell: bash or zsh.
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh"]]


def run(options: CompletionOptions) -> int:
    """Print a script that completes commands, their options, and files.

    examples:
      verl-trgrpo completion bash >> ~/.bashrc
      verl-trgrpo completion zsh > ~/.zfunc/_verl-trgrpo    if ~/.zfunc is in $fpath

    notes:
      Options change with the package: print the script again after an upgrade.
    """
    from verl_trgrpo.cli.main import COMMANDS, load_command

    tree: dict[str, Any] = {}
    for name in COMMANDS:
        *groups, last = name.split()
        node = tree
        for group in groups:
            node = node.setdefault(group, {})
        node[last] = load_command(name)[1] or make_dataclass("Words", [])
    script = io.StringIO()
    with contextlib.redirect_stdout(script), contextlib.suppress(SystemExit):
        tyro.cli(
            _one_of(tree),
            prog="verl-trgrpo",
            args=["--tyro-write-completion", options.shell, "-"],
            config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
        )
    # tyro completes values of options only; with this bash completes file names where it has no answer.
    print(script.getvalue().replace("complete -F", "complete -o default -F"), end="")
    return 0


def _one_of(commands: dict[str, Any]) -> Any:
    """Return the type of which tyro makes one subcommand for each class, and a group of them for each dictionary."""
    kinds = [
        Annotated[
            make_dataclass("Group", [("command", _one_of(kind))]) if isinstance(kind, dict) else kind,
            tyro.conf.subcommand(name),
        ]
        for name, kind in commands.items()
    ]
    return Union[tuple(kinds)]  # noqa: UP007  not known to a type checker
