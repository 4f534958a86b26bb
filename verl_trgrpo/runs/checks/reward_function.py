"""The reward function of a run, loaded as veRL's reward workers will: a mistake in it comes out before anything is started.

veRL would load it after the model and the rollout engine are up. It is loaded in a process of its own, because importing it
may set variables, take a GPU or a port, or print; and in the directory and the environment of the training.
``python -m verl_trgrpo.runs.checks.reward_function RESULT`` is that process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.problems import Finding, error, not_checked
from verl_trgrpo.runs.checks.files import OWN_REWARDS, REWARD
from verl_trgrpo.runs.environment import training_environment

# A module that loads a model of its own may take long; then it is left to veRL.
_SECONDS = 120.0


def reward_findings(config: DictConfig) -> list[Finding]:
    """Load ``reward.custom_reward_function`` in a process of its own.

    Where Ray gives its workers another environment, or they may run elsewhere, nothing is loaded.
    """
    reward = OmegaConf.select(config, REWARD) or {}
    path, name = reward.get("path"), reward.get("name")
    if path == OWN_REWARDS:
        return []
    if not path:
        return [not_checked(REWARD, f"{REWARD}.path is not set; veRL's own rewards choose by data_source")]
    if place := _workers_place(config):
        return [not_checked(REWARD, f"{REWARD}.path={path} is loaded by Ray's workers, whose place {place} decides")]
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory) / "result"
        try:
            process = subprocess.run(
                [sys.executable, "-m", __name__, str(result)],
                input=json.dumps([path, name]),
                env=training_environment(config.trainer.device == "cpu", os.devnull),
                capture_output=True,
                text=True,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return [not_checked(REWARD, f"{REWARD}.path={path} was not loaded within {_SECONDS:.0f} s; veRL will see")]
        ended = f"its process ended with exit code {process.returncode}"
        reason = result.read_text() if result.is_file() else f"{ended}: {process.stderr.strip()[-300:]}"
    if reason:
        return [error(REWARD, f"{REWARD}.path={path} cannot be loaded ({reason}); correct it")]
    return [not_checked(REWARD, f"{path} decides which data sources it knows")]


def _workers_place(config: DictConfig) -> str:
    """What gives Ray's workers another environment, or another machine, than the training has here; nothing otherwise."""
    ray_init = OmegaConf.select(config, "ray_kwargs.ray_init") or {}
    places = {
        "RAY_ADDRESS": os.environ.get("RAY_ADDRESS"),
        "ray_kwargs.ray_init.address": ray_init.get("address"),
        "ray_kwargs.ray_init.runtime_env": any((ray_init.get("runtime_env") or {}).values()),
    }
    return next((name for name, value in places.items() if value), "")


def _load(path: str, name: str | None) -> str:
    """Load a function as veRL does; returns why that is not possible, or nothing."""
    from verl.utils.import_utils import load_extern_object

    if not name:
        return f"{REWARD}.name is not set; give the function's name"
    file = Path(path.removeprefix("file://")).resolve()
    try:
        function = load_extern_object(module_path=path, object_name=name)
    except (Exception, SystemExit) as error:  # a module that is imported may raise anything
        # veRL wraps what a file raises.
        cause = error.__cause__ if str(error).startswith("Error loading module") and error.__cause__ else error
        frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if Path(frame.filename) == file]
        place = f" at line {frames[-1].lineno}" if frames else ""
        return f"{type(cause).__name__}: {cause}{place}"
    return "" if callable(function) else f"{name} is {type(function).__name__}, not a function"


def main() -> None:
    reason = _load(*json.load(sys.stdin))
    Path(sys.argv[1]).write_text(reason)
    sys.stderr.flush()
    os._exit(0)  # whatever the module started must not hold this up


if __name__ == "__main__":
    main()
