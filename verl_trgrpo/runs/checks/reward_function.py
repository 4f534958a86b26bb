"""The reward function of a run, loaded as veRL's reward workers will: a mistake in it comes out before anything is started.

veRL would load it after the model and the rollout engine are up. It is loaded in a process of its own, because importing it
may set variables, take a GPU or a port, or print; and in the directory and the environment of the training.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.runs.checks.files import OWN_REWARDS, REWARD
from verl_trgrpo.runs.environment import training_environment

# A module that loads a model of its own may take long; then it is left to veRL.
_SECONDS = 120.0

# The last line on standard error says why the function cannot be loaded.
_PROGRAM = """
import os, sys
from verl.utils.import_utils import load_extern_object
path, name = sys.argv[1:]
try:
    found = load_extern_object(module_path=path, object_name=name)
    reason = "" if callable(found) else f"{name} is {type(found).__name__}, not a function"
except (Exception, SystemExit) as error:
    cause = error.__cause__ or error  # veRL wraps what a file raises
    reason = f"{type(cause).__name__}: {cause}"
print(reason, file=sys.stderr, flush=True)
os._exit(bool(reason))  # whatever the module started must not hold this up
"""


def reward_findings(config: DictConfig) -> list[Finding]:
    """Load ``reward.custom_reward_function`` in a process of its own.

    Where Ray gives its workers another environment, or they may run elsewhere, nothing is loaded.
    """
    reward = OmegaConf.select(config, REWARD) or {}
    path, name = reward.get("path"), reward.get("name")
    if path == OWN_REWARDS and name == "compute_score":
        return []
    if not path:
        return [Finding.not_checked(REWARD, f"{REWARD}.path is not set; veRL's own rewards choose by data_source")]
    if place := _workers_place(config):
        return [
            Finding.not_checked(REWARD, f"{REWARD}.path={path} is loaded by Ray's workers, whose place {place} decides")
        ]
    # A file, not a pipe: what the module started may keep a pipe open after its process has ended.
    with tempfile.TemporaryFile("w+") as said:
        try:
            process = subprocess.run(
                [sys.executable, "-c", _PROGRAM, path, str(name)],
                env=training_environment(config.trainer.device == "cpu", os.devnull),
                stdout=subprocess.DEVNULL,
                stderr=said,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return [
                Finding.not_checked(
                    REWARD, f"{REWARD}.path={path} was not loaded within {_SECONDS:.0f} s; veRL will see"
                )
            ]
        said.seek(0)
        lines = said.read().strip().splitlines()
    if process.returncode:
        reason = (lines or ["no output"])[-1]
        message = f"{REWARD}.path={path} cannot be loaded (exit code {process.returncode}: {reason}); correct it"
        return [Finding.error(REWARD, message)]
    return [Finding.not_checked(REWARD, f"{path} decides which data sources it knows")]


def _workers_place(config: DictConfig) -> str:
    """What gives Ray's workers another environment, or another machine, than the training has here; nothing otherwise."""
    ray_init = OmegaConf.select(config, "ray_kwargs.ray_init") or {}
    places = {
        "RAY_ADDRESS": os.environ.get("RAY_ADDRESS"),
        "ray_kwargs.ray_init.address": ray_init.get("address"),
        "ray_kwargs.ray_init.runtime_env": any((ray_init.get("runtime_env") or {}).values()),
    }
    return next((name for name, value in places.items() if value), "")
