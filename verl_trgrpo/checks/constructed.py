"""Have what a run's workers would construct constructed in a sandbox, and report what fails there.

Settings may be a stranger's: a section names classes that are imported, a model's tokenizer is a program. So nothing of it is
built in this process. The other process imports veRL and vLLM, which takes as long as veRL's import here; `begin` starts it
early, so that both go on at the same time.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_trgrpo.checks.settings import written_keys
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.sandbox import Sandbox
from verl_trgrpo.runs.keys import LOSS, MODEL, REWARD_MODEL, selected, with_whole_keys

# Seconds of the processor; the tokenizer of the model is opened among others.
_SECONDS = 120.0
_MOST_REPLY = 1 << 20
_ALL = "veRL's dataclasses"


@cache
def _sandbox(process: int) -> Sandbox:
    """Return the process that constructs for this one; a fork has its own."""
    return Sandbox("verl_trgrpo.checks.construct.program:construct", _MOST_REPLY, renew_after=None)


def begin() -> None:
    """Start the process, so that it imports veRL and vLLM while this one goes on."""
    _sandbox(os.getpid()).begin()


def close() -> None:
    """End the process; the next question starts another."""
    _sandbox(os.getpid()).close()


def name_findings(view: RunView) -> list[Finding]:
    """Return the names that differ from the defaults, and that those who look them up do not know."""
    return _asked("names", view, [*written_keys(view.config, view.defaults)])


def constructed_findings(view: RunView) -> list[Finding]:
    """Construct veRL's dataclasses, the parts of its engine, and the configuration of vLLM's engine."""
    paths = {
        MODEL: view[f"{MODEL}.path"],
        "critic.model": view["critic.model.path"],
        REWARD_MODEL: view[f"{REWARD_MODEL}.model_path"],
    }
    local = [key for key, path in paths.items() if Path(str(path)).expanduser().is_dir()]
    validates = view.trainer_name != "fully_async"  # the other trainers call veRL's validate_config
    loss = OmegaConf.to_container(selected(view.defaults, LOSS), resolve=True)
    return _asked("constructed", view, loss, local, validates)


def _asked(question: str, view: RunView, *arguments: Any) -> list[Finding]:
    try:
        settings = view.resolved
    except OmegaConfBaseException:  # a reference that leads nowhere, which the check of types reports
        return []
    try:
        found, _ = _sandbox(os.getpid()).ask(question, settings, *arguments, limit=_SECONDS)
    except (TimeoutError, RuntimeError) as error:
        return [Finding.not_checked(_ALL, f"{_ALL}: not constructed here ({error})")]
    if found is None:
        return [Finding.not_checked(_ALL, f"{_ALL}: not constructed here (the program that constructs them fails)")]
    return [
        Finding(Level(level), where, with_whole_keys(message, where, view.config)) for level, where, message in found
    ]
