"""Read the trainings that a shell script starts, without running anything of it."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from verl_trgrpo.common.findings import Finding, InvalidInputError
from verl_trgrpo.common.foreign import read_foreign, real_path
from verl_trgrpo.common.secrets import without_passwords, word_problems
from verl_trgrpo.common.text import shorten
from verl_trgrpo.runs.environment import TRAINER
from verl_trgrpo.runs.overrides import override_key, quoted
from verl_trgrpo.runs.trainers import OtherTrainer, other_trainer, verl_directory
from verl_trgrpo.shell.bash import Bash, TooLongError

# What veRL calls its configuration where a command names none.
_DEFAULT = "ppo_trainer"
_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch")
_LIMIT = 1 << 20
_MODULES = "VERL_USE_EXTERNAL_MODULES"
_MODULE = re.compile(r"[\w.]+")
# An override where bash expects a command: a comment or an empty line before it has ended the command.
_LOST = re.compile(r"[+~]{0,2}[a-z_]\w*(\.\w+)+=")
# Sections with a policy, in veRL and in EasyR1: without one a program is another kind of trainer.
_POLICIES = ("actor_rollout_ref.", "worker.actor.")
# Programs whose words are not a command.
_NOT_RUN = ("grep", "pgrep", "pkill", "sed", "awk")


@dataclass(frozen=True)
class ScriptStart:
    """A training that a script starts.

    Args:
        line: of the command.
        source: name or file of its primary configuration.
        overrides: that are known.
        findings: what was not read, by line, and what bash does to the command.
        trainer: that is started; None for ``main_ppo``.
        unread: keys whose values are not known.
    """

    line: int
    source: str | Path
    overrides: tuple[str, ...]
    findings: tuple[Finding, ...]
    trainer: OtherTrainer | None = None
    unread: frozenset[str] = frozenset()


def is_script(source: str) -> bool:
    """Return whether a word names a shell script."""
    return source.endswith(_SUFFIXES)


def read_script(
    path: Path, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> list[ScriptStart]:
    """Return the trainings that a script starts, in the order of their commands.

    Args:
        path: of the script.
        arguments: that it gets, as behind ``bash SCRIPT.sh``.
        environment: of the shell, that of this process by default.

    Raises:
        InvalidInputError: it is not text, or starts no training that can be read.
        ForeignFileError: it cannot be read.
    """
    if not path.is_file():
        raise InvalidInputError([f"{path}: does not exist; correct the path"])
    try:
        text = read_foreign(real_path(path), _LIMIT).decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidInputError([f"{path}: is not a text file; give a shell script"])
    reader = _Reader(path, arguments, {**(os.environ if environment is None else environment), "PWD": str(Path.cwd())})
    reader.read(text)
    return reader.starts


class _Reader:
    """Collects the starts of a script."""

    def __init__(self, path: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.path, self.arguments = path, arguments
        self.bash = Bash(str(path), arguments, environment, self._take)
        self.starts: list[ScriptStart] = []
        self._lost: list[tuple[int, str]] = []
        self._others: list[str] = []
        self._nested = 0

    def read(self, text: str) -> None:
        """Follow the script, and add to each start what concerns the whole script."""
        ends = []
        try:
            self.bash.follow(text)
        except TooLongError as error:
            ends = [f"{error}; what follows was not read"]
        if "\r\n" in text:
            line = text[: text.index("\r\n")].count("\n") + 1
            remedy = f"type sed -i 's/\\r$//' {shlex.quote(str(self.path))}"
            ends_of_lines = "ends as on Windows, and bash takes the carriage return for a part of the last word"
            returns = [self._error(line, f"{ends_of_lines}; {remedy}")]
        else:
            returns = []
        ends += [f"line {line}: cannot be read as bash; correct the line" for line in self.bash.unparsed]
        findings = [Finding.not_checked(str(self.path), f"{self.path}, {reason}") for reason in dict.fromkeys(ends)]
        findings += returns
        lost = "is a command of its own, because a comment or a line without a backslash ends the one before; correct that line"
        findings += [self._error(line, f"{shorten(word)} {lost}") for line, word in dict.fromkeys(self._lost)]
        if self.arguments and not self.bash.words.takes_arguments:
            findings.append(
                Finding.error(
                    str(self.path),
                    f'{self.path}: takes no arguments, so {" ".join(self.arguments)} has no effect; write "$@" as the last word '
                    "of the command",
                )
            )
        if not self.starts:
            if self.bash.ended:
                fix = "give the variable or argument that the script tests there"
                self._others.append(f"line {self.bash.ended}: ends the script; {fix}")
            others = [f"{self.path}, {each}" for each in dict.fromkeys(self._others)]
            nothing = f"{self.path}: starts no training that can be read (python3 -m {TRAINER} ...)"
            raise InvalidInputError([nothing, *(finding.message for finding in findings), *others])
        self.starts = [replace(each, findings=(*findings, *each.findings)) for each in dict.fromkeys(self.starts)]

    def _take(self, line: int, words: list[str]) -> None:
        """Take one command of the script: a start, a command in quotes for another shell, or something else."""
        name = words[0].rpartition("/")[2]
        if name in _NOT_RUN:
            return
        if _LOST.match(words[0]):
            self._lost.append((line, self.bash.shown(words[0])))
        for at, word in enumerate(words):
            if word == "-m" and at + 1 < len(words) and _is_trainer(words[at + 1]):
                self._start(line, words[at + 1], words[at + 2 :])
                return
            if re.search(r"(^|/)main_\w+\.py$", word):
                self._start(line, _module_of(word), words[at + 1 :])
                return
            if re.search(r"\s-m\s+\S*main_|\s\S*main_\w+\.py\s", word) and self._nested < 5:
                self._nested += 1
                self.bash.follow(word, line)
                self._nested -= 1
                return
            if at and is_script(word) and name in ("bash", "sh", "source", ".", "sbatch", "srun"):
                self._others.append(f"line {line}: calls {self.bash.shown(word)}; give that script")

    def _start(self, line: int, module: str, words: list[str]) -> None:
        unread = [word for word in words if self.bash.reason(word)]
        known = [word for word in words if word not in unread]
        findings = [*self._unread(unread), *self._surroundings(line)]
        other = None if module == TRAINER else other_trainer(module)
        if other:
            if module != other.module:
                findings.append(self._error(line, f"starts {module}, which is not here; start {other.module}"))
            left = (
                "the rules of main_ppo's v1 trainer, settings without effect, and the memory"
                if other.name
                else "all but keys"
            )
            reason = f"{self.path}, line {line}: starts {other.module}, of which these are not checked: {left}"
            findings.append(Finding.not_checked(str(self.path), reason))
        elif module != TRAINER:
            if _is_file(module) or not any(section in word for word in words for section in _POLICIES):
                shown = self.bash.shown(module)
                self._others.append(f"line {line}: starts {shown}; only the arguments of {TRAINER} are checked")
                return
            reason = (
                f"starts {module}, which is not here; its arguments were checked as those of {TRAINER}; start {TRAINER}"
            )
            findings.append(self._error(line, reason))
        try:
            source, overrides = main_arguments(known, other)
        except ValueError as error:
            findings.append(self._error(line, str(error)))
            plain = [word for word in known if not word.startswith("-") and "=" in word]
            source, overrides = main_arguments(plain, other)
        if isinstance(source, Path) and not source.is_file():
            name = source.stem if (_configs() / source.name).is_file() else _DEFAULT
            reason = f"its configuration {source} is not here, so its arguments were checked with {name}; validate where it is"
            findings.append(self._error(line, reason))
            source = name
        if problems := word_problems(overrides):
            raise InvalidInputError([f"{self.path}, line {line}: {problem}" for problem in problems])
        keys = frozenset(override_key(word) for word in unread if "=" in word)
        self.starts.append(ScriptStart(line, source, tuple(overrides), tuple(findings), other, keys))

    def _surroundings(self, line: int) -> list[Finding]:
        """Return what of the shell's state this process does not have."""
        directory, modules = self.bash.words.state.directory, self.bash.words.state.variables.get(_MODULES, "")
        reasons = []
        if Path(directory) != Path.cwd():
            reasons.append(f"starts in {self.bash.shown(directory)}; relative paths were sought in {Path.cwd()}")
        if modules and modules != os.environ.get(_MODULES):
            reasons.append(f"{_MODULES}={modules} is set in the script alone; set {_MODULES} before this command, too")
        return [Finding.not_checked(str(self.path), f"{self.path}, line {line}: {reason}") for reason in reasons]

    def _error(self, line: int, reason: str) -> Finding:
        return Finding.error(str(self.path), f"{self.path}, line {line}: {reason}")

    def _unread(self, words: Sequence[str]) -> list[Finding]:
        """Return a finding for each reason why words are not known."""
        by_reason: dict[str, list[str]] = {}
        for word in words:
            shown = without_passwords(shorten(self.bash.shown(word))).strip("'\"")
            by_reason.setdefault(self.bash.reason(word), []).append("whole words" if shown == "..." else shown)
        return [
            Finding.not_checked(str(self.path), f"{self.path}, {reason}; left out: {', '.join(dict.fromkeys(shown))}")
            for reason, shown in by_reason.items()
        ]


def _is_trainer(module: str) -> bool:
    """Return whether a module may be a trainer: one of veRL, of its recipes, or a main program."""
    return bool(_MODULE.fullmatch(module)) and (module.startswith(("verl.", "recipe.")) or "main" in module)


def _module_of(path: str) -> str:
    """Return the module of a file of veRL by its path; the path of any other file."""
    found = re.search(r"(?:^|/)((?:verl|recipe)/[\w/]+)\.py$", path)
    return found[1].replace("/", ".") if found else path


def _is_file(module: str) -> bool:
    """Return whether veRL or this directory has a module."""
    file = f"{module.replace('.', '/')}.py"
    return any((place / file).is_file() for place in (verl_directory().parent, Path.cwd()))


def _configs() -> Path:
    return verl_directory() / "trainer" / "config"


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would end the process."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ValueError(message)


def main_arguments(words: Sequence[str], other: OtherTrainer | None = None) -> tuple[str | Path, list[str]]:
    """Return the primary configuration and the overrides in arguments of ``main_ppo``, or of another trainer, as Hydra does.

    Raises:
        ValueError: Hydra refuses them.
    """
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    parser.__class__ = _Parser
    options = parser.parse_args([*words])
    name, folder = (options.config_name or _DEFAULT).removesuffix(".yaml"), options.config_path or options.config_dir
    overrides = [*options.overrides]
    if other:
        own = other.folder.parent / folder if folder else other.folder
        return own / f"{(options.config_name or other.config).removesuffix('.yaml')}.yaml", overrides
    if not folder:
        return name, overrides
    place = verl_directory() / "trainer" / folder
    file = place / f"{name}.yaml"
    if place == _configs():
        return name, overrides
    if options.config_dir and not file.is_file():
        return name, [f"hydra.searchpath=[{quoted(f'file://{place}')}]", *overrides]
    return file, overrides
