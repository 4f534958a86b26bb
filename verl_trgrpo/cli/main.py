"""``verl-trgrpo``: train and try out, check, evaluate, analyse."""

from __future__ import annotations

import difflib
import importlib
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from verl_trgrpo import __version__
from verl_trgrpo.common.options import exit_code

# Name, function in `verl_trgrpo.cli` that takes the other words and returns the exit code, and what it does.
COMMANDS = {
    "doctor": ("doctor.run", "check versions, device, registration with veRL and vLLM; a remedy for each failure"),
    "quickstart": ("demonstrations.quickstart", "train a tiny model on Knights-and-Knaves puzzles, on a CPU, in minutes"),
    "small-lm": ("demonstrations.small_lm", "train SmolLM2-135M on word problems, on a CPU: a real language model"),
    "train": ("train.run", "train with veRL: Hydra overrides, a progress bar, curves at the end"),
    "validate": ("validate.run", "find everything that is wrong with a recipe or configuration, without starting it"),
    "preview": ("preview.run", "sample a few responses as a run would, and show their rewards, before it starts"),
    "compare": ("compare.run", "train algorithms with several seeds; table with intervals and paired tests"),
    "report": ("report.run", "compare training runs on one HTML page: curves, weights, table, responses"),
    "eval": ("evaluate.run", "evaluate a checkpoint on test files: avg@k and pass@k with confidence intervals"),
    "export": ("export.run", "write a checkpoint as a Hugging Face directory with a model card, and push it to the hub"),
    "analyze": ("analyze.run", "measure the gradients of a checkpoint's tokens before and after weighting, or its sharpness"),
    "data build": ("data.build", "build the Parquet files of a task: kk, deepscaler, search-qa, reasoning-gym"),
    "data check": ("data.check", "check parquet files for what veRL and the rewards need"),
    "data decontaminate": ("data.decontaminate", "find train rows that are in test files, and remove them"),
    "search index": ("search.index", "build an index of a corpus of passages"),
    "search serve": ("search.serve", "serve an index over HTTP in Search-R1's protocol"),
    "completion": ("completion.run", "print a script with which bash or zsh completes commands and options"),
    "search demo": ("demonstrations.search_demo", "train a tiny model to search, on a CPU, in minutes"),
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code, see `exit_code`.

    Raises:
        SystemExit: with 0 after a command's ``--help``.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # What veRL says on import of optional engines and of accelerators concerns its workers, not this process.
    warnings.filterwarnings("ignore", ".* engine is not available", UserWarning)
    logging.getLogger("verl.plugin.platform.platform_manager").addFilter(_nothing)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # as in the workers of a training; last, so that nothing there hides a package
    return exit_code(partial(_run, list(sys.argv[1:] if argv is None else argv)))


def _run(words: list[str]) -> int:
    for length in (1, 2):
        name = " ".join(words[:length])
        if name in COMMANDS:
            module, _, function = COMMANDS[name][0].partition(".")
            command = getattr(importlib.import_module(f"verl_trgrpo.cli.{module}"), function)
            return command(words[length:])
    if words == ["--version"]:
        print(f"verl-trgrpo {__version__}")
        return 0
    # All commands, or those of a group such as data.
    group = {name: about for name, (_, about) in COMMANDS.items() if words and name.startswith(f"{words[0]} ")}
    if words[-1:] in (["-h"], ["--help"]) and (group or len(words) == 1):
        print(_overview(group or {name: about for name, (_, about) in COMMANDS.items()}))
        return 0
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(group or COMMANDS)}"
    print(f"error: {name or 'nothing'} is not a command; {hint}", file=sys.stderr)
    return 2


def _nothing(record: logging.LogRecord) -> bool:
    """A filter that lets nothing through; the same object each time, which a logger takes once."""
    return False


def _overview(commands: Mapping[str, str]) -> str:
    return "\n".join(
        [
            "TR-GRPO (token-regulated GRPO, arXiv 2511.00066) for veRL.\n\nusage: verl-trgrpo COMMAND ...\n",
            *(f"  {name:<20}{about}" for name, about in commands.items()),
            "\n`verl-trgrpo COMMAND --help` explains a command, with examples.",
            "Exit codes: 0 fine, 1 failed or problems found, 2 wrong input, 130 interrupted.",
            "Start with `verl-trgrpo doctor`, then `verl-trgrpo quickstart`.",
        ]
    )
