"""What a task declares: the rewards of its rows, the builder of its data files, its agent loops.

The ``__init__.py`` of a task's folder holds it as ``TASK``. A function is named as ``module:function`` and imported at first use,
so that the list of all tasks takes no time.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Score:
    """Score of one response.

    Every reward returns the same fields: veRL collects the extra keys of a batch from its first row, so rows of different
    tasks can share a batch only if their keys agree.

    Args:
        score: the reward for training; its range depends on the task.
        acc: 1.0 if the answer is right, else 0.0.
        format_ok: 1.0 if an answer was found where the task requires it, else 0.0.
        f1: partial credit from 0.0 to 1.0 if the task defines one (search QA), else equal to `acc`. Never a reward by
            itself.
        gold_unparseable: 1.0 if the ground truth could not be parsed, so that `acc` 0.0 does not mean "wrong".
        timed_out: 1.0 if the comparison reached its limit of time or memory, so that `acc` 0.0 means "unknown".
        restated: 1.0 if the answer is refused because it restates the question.
    """

    score: float
    acc: float
    format_ok: float = 1.0
    f1: float | None = None
    gold_unparseable: float = 0.0
    timed_out: float = 0.0
    restated: float = 0.0

    def as_dict(self) -> dict[str, float]:
        """Return the fields as veRL needs them, all float."""
        return {**vars(self), "f1": self.acc if self.f1 is None else self.f1}


RewardFunction = Callable[..., Score]
ReferenceResponse = Callable[[Any], str | None]
Mismatch = Callable[[str, Any, Mapping[str, Any]], str]


@dataclass(frozen=True)
class Scoring:
    """Scoring of the rows of a data source.

    Args:
        reward: the function, or ``module:function``.
        reference_response: likewise; returns a response that states a given ground truth and must get full marks.
        mismatch: likewise; of the text of a prompt, its ground truth and extra_info, returns why this cannot be the ground
            truth of the prompt, or "".
        alternatives: likewise; returns the answers that the text of a ground truth names, itself if it names one.
    """

    reward: RewardFunction | str
    reference_response: ReferenceResponse | str | None = None
    mismatch: Mismatch | str | None = None
    alternatives: Callable[[str], list[str]] | str | None = None


@dataclass(frozen=True)
class Builder:
    """Builder of a task's data files.

    Args:
        function: ``module:function``. It takes ``options``, annotated with a `BuilderOptions`, and ``progress``, and returns the
            manifest, or None if the files are there already. Its docstring up to ``Returns:`` is the command's help.
        summary: one line of help.
    """

    function: str
    summary: str


@dataclass(frozen=True)
class AgentLoop:
    """Agent loop whose responses have several turns, as evaluation and checks use it; veRL reads its own ``agent_loops.yaml``.

    It begins with the rendered prompt of a row. Its class may have a static method ``run_checks(view)``, which returns findings
    about a run that uses it (``checks.view.RunView``).

    Args:
        loop: ``module:function``, the class, an ``AgentLoopBase`` of veRL.
        override: words with which a run takes it for all rows.
        section: of ``actor_rollout_ref.rollout.custom``, with its settings; empty without any.
        options: ``module:function``; reads the settings, a mapping or None, and raises a ValueError for wrong ones.
        opened: ``module:function``; of the settings, an asynchronous context in which an evaluation makes its responses. Raises a
            ValueError if they cannot be made.
        places: settings that say where something is, such as an address; they may differ between the attempts of a run.
        failures: what to look at where one of the loop's counts (``rollout_metrics``) is not 0, by its name.
    """

    loop: str
    override: str
    section: str = ""
    options: str = ""
    opened: str = ""
    places: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sampling:
    """Samples per prompt, temperature (0: greedy), top-p, and maximum number of tokens of a response."""

    k: int
    temperature: float
    top_p: float
    max_tokens: int


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task.

    Args:
        rewards: scoring by data source, in whose name ``*`` matches any characters.
        foreign: scoring by names that other projects write, regardless of case, hyphens and underscores; the first pattern that
            matches decides. A reward that is registered under one of them takes precedence.
        builders: by the word of ``verl-trgrpo data build``.
        agent_loops: by the name that rows have as ``agent_name``.
        presets: sampling of a protocol of evaluation, by the word of ``eval --preset``.
        row_keys: by a noun for what a row holds, ``module:function``; of a row, returns a text that rows share which ask the same
            in other words, or None for a row of another kind.
        spellings: by what is spelled, ``module:function``; returns a question in one spelling.
    """

    rewards: dict[str, Scoring] = field(default_factory=dict)
    foreign: dict[str, Scoring] = field(default_factory=dict)
    builders: dict[str, Builder] = field(default_factory=dict)
    agent_loops: dict[str, AgentLoop] = field(default_factory=dict)
    presets: dict[str, Sampling] = field(default_factory=dict)
    row_keys: dict[str, str] = field(default_factory=dict)
    spellings: dict[str, str] = field(default_factory=dict)


def imported(function: Any) -> Any:
    """Return a function, or what ``module:function`` names."""
    return _import(function) if isinstance(function, str) else function


@cache
def _import(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
