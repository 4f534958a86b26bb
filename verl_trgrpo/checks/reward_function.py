"""Load the reward function of a run as veRL's reward workers will.

veRL would load it after the model and the rollout engine have started. It is loaded in a process of its own, because its import
may set variables, take a GPU or a port, or print; and in the directory and the environment of the training.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from omegaconf import DictConfig

from verl_trgrpo.checks.view import OWN_REWARDS, RunView
from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import did_you_mean
from verl_trgrpo.runs.compose import selected
from verl_trgrpo.runs.environment import training_environment
from verl_trgrpo.runs.keys import REWARD, place_of
from verl_trgrpo.tasks.registry import known_options

# A module that loads a model of its own may take longer; veRL will load it.
_SECONDS = 120.0

# The last line on standard error says why the function cannot be loaded.
PROGRAM = """
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


def reward_findings(view: RunView) -> list[Finding]:
    """Load ``reward.custom_reward_function`` in a process of its own.

    Nothing is loaded where Ray gives its workers another environment, or where they may run on other machines.
    """
    config = view.config
    path, name = selected(config, f"{REWARD}.path"), selected(config, f"{REWARD}.name")
    if path == OWN_REWARDS and name == "compute_score":
        return _option_findings(config)
    if not path:
        return [Finding.not_checked(REWARD, f"{REWARD}.path=null: veRL's own rewards choose by data_source")]
    if place := _workers_place(config):
        return [Finding.not_checked(REWARD, f"{REWARD}.path={path}: is loaded by Ray's workers, see {place}")]
    code, reason = _load(path, str(name), config.trainer.device == "cpu")
    if code is None:
        return [Finding.not_checked(REWARD, f"{REWARD}.path={path}: was not loaded within {_SECONDS:.0f} s")]
    if code:
        return [
            Finding.error(REWARD, f"{REWARD}.path={path}: cannot be loaded (exit code {code}: {reason}); correct it")
        ]
    return [Finding.not_checked(REWARD, f"{REWARD}.path={path}: which data sources it scores was not checked")]


def _option_findings(config: DictConfig) -> list[Finding]:
    """Check that each option of this package's rewards is one that some reward has; otherwise every response would fail."""
    options = selected(config, f"{REWARD}.reward_kwargs")
    unknown = sorted(set(options) - known_options()) if options else []
    return [
        Finding.error(key, f"{key}: no reward has this option; {fix}")
        for key, fix in ((f"{REWARD}.reward_kwargs.{name}", _option_fix(str(name))) for name in unknown)
    ]


def _option_fix(name: str) -> str:
    place = place_of(f"{REWARD}.reward_kwargs.{name}")
    return f"set {place}" if place else did_you_mean(name, sorted(known_options()))


def _load(path: str, name: str, on_cpu: bool) -> tuple[int | None, str]:
    """Return the exit code of the process that loads a function, None for one that takes too long, and its last line."""
    # A file instead of a pipe: what the module started may keep a pipe open after its process has ended.
    with tempfile.TemporaryFile("w+") as said:
        try:
            process = subprocess.run(
                [sys.executable, "-c", PROGRAM, path, name],
                env=training_environment(on_cpu, os.devnull),
                stdout=subprocess.DEVNULL,
                stderr=said,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return None, ""
        said.seek(0)
        return process.returncode, (said.read().strip().splitlines() or ["no output"])[-1]


def _workers_place(config: DictConfig) -> str:
    """Return what gives Ray's workers another environment or machine than the training has here; "" for nothing."""
    ray_init = selected(config, "ray_kwargs.ray_init") or {}
    places = {
        "RAY_ADDRESS": os.environ.get("RAY_ADDRESS"),
        "ray_kwargs.ray_init.address": ray_init.get("address"),
        "ray_kwargs.ray_init.runtime_env": any((ray_init.get("runtime_env") or {}).values()),
    }
    return next((name for name, value in places.items() if value), "")
