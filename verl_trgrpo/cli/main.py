"""``verl-trgrpo``: the table of commands, and how one is called."""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, get_type_hints

from verl_trgrpo import __version__
from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.common.import_path import add_working_directory
from verl_trgrpo.common.options import exit_code, parse_options
from verl_trgrpo.common.secrets import without_passwords, word_problems
from verl_trgrpo.common.text import did_you_mean, for_terminal, show
from verl_trgrpo.tasks.registry import import_external_modules, known_builders

# Name, function in `verl_trgrpo.cli` and summary. The function takes the dataclass that its parameter `options` is annotated
# with, or the remaining words if it has no such parameter, and returns the exit code. Its docstring is the command's help.
COMMANDS = {
    "doctor": ("doctor.run", "check whether this machine can train; print a fix for each failed check"),
    "quickstart": ("quickstart.quickstart", "train a tiny model on Knights-and-Knaves puzzles, on a CPU, in minutes"),
    "train": ("runs.train", "train with veRL; shows progress, resumes, and plots curves at the end"),
    "validate": ("runs.validate", "find the mistakes in a recipe, configuration or script without starting a run"),
    "preview": ("models.preview", "sample a few responses with the settings of a run, and show their rewards, before training"),
    "health": ("runs.health", "find problems in the metrics of a run: first step, meaning, remedy"),
    "compare": ("compare.compare", "compare training runs: means over seeds, intervals, paired tests"),
    "report": ("compare.report", "compare training runs on one HTML page, with curves, weights and responses"),
    "eval": ("models.evaluate", "evaluate a checkpoint on test files: avg@k and pass@k with confidence intervals"),
    "export": ("models.export", "write a checkpoint as a Hugging Face directory with a model card"),
    "data build": ("data.build", ""),  # of each task, see `commands`
    "data check": ("data.check", "check that Parquet files have what veRL and the rewards need"),
    "data decontaminate": ("data.decontaminate", "find train rows that are also in test files; write a file without these rows"),
    "search index": ("search.index", "build an index of a corpus of passages"),
    "search serve": ("search.serve", "serve an index over HTTP in Search-R1's protocol"),
}  # fmt: skip


class _Escaped(logging.Formatter):
    """Formats messages, which may quote a file, without passwords and as `for_terminal` does."""

    def format(self, record: logging.LogRecord) -> str:
        return for_terminal(without_passwords(super().format(record)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code, see `exit_code`."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Escaped("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # Messages that veRL prints on import about optional engines and accelerators concern its workers, not this process.
    warnings.filterwarnings("ignore", ".* engine is not available", UserWarning)
    logging.getLogger("verl.plugin.platform.platform_manager").disabled = True
    add_working_directory()
    return exit_code(partial(_run, list(sys.argv[1:] if argv is None else argv)))


def commands() -> dict[str, str]:
    """Return the summary of each command by its name; each task brings its own ``data build WORD``."""
    summaries: dict[str, str] = {}
    for name, (_, summary) in COMMANDS.items():
        builders = {f"{name} {word}": each.summary for word, each in known_builders().items()}
        summaries |= builders if name == "data build" else {name: summary}
    return summaries


def _run(words: list[str]) -> int:
    raise_invalid(word_problems(words))
    if words[:2] == ["data", "build"]:
        import_external_modules()  # which may bring tasks
    summaries = commands()
    for length in (1, 2, 3):
        name = " ".join(words[:length])
        if name in summaries:
            parent = name if length < 3 else "data build"
            module, _, function_name = COMMANDS[parent][0].partition(".")
            function: Any = getattr(importlib.import_module(f"verl_trgrpo.cli.{module}"), function_name)
            options_class = get_type_hints(function).get("options")
            if options_class is None:
                return function(words[len(parent.split()) :])
            help_text = inspect.getdoc(function) or ""
            return function(parse_options(options_class, f"verl-trgrpo {name}", help_text, words[length:]))
    if words == ["--version"]:
        show(f"verl-trgrpo {__version__}")
        return 0
    named = list(takewhile(lambda word: not word.startswith("-"), words))
    begin = "".join(f"{word} " for word in named)
    group = {name: summary for name, summary in summaries.items() if name.startswith(begin)}
    if group and words[len(named) :] in (["-h"], ["--help"]):
        show(_overview(group))
        return 0
    remedy = f"choose one of {', '.join(group)}" if group else did_you_mean(" ".join(named), summaries)
    raise ValueError(f"{' '.join(named) or 'nothing'} is not a command; {remedy}")


def _overview(summaries: Mapping[str, str]) -> str:
    return "\n".join(
        [
            "TR-GRPO (token-regulated GRPO, arXiv 2511.00066) for veRL.\n\nusage: verl-trgrpo COMMAND ...\n",
            *(f"  {name:<25}{summary}" for name, summary in summaries.items()),
            "\n`verl-trgrpo COMMAND --help` explains a command, with examples.",
            "Exit codes: 0 success, 1 failed or problems found, 2 invalid input, 130 interrupted.",
            "Start with `verl-trgrpo doctor`, then `verl-trgrpo quickstart`.",
        ]
    )
