"""Load the functions and classes of a run's own as veRL's workers will, and bind the reward function's parameters.

veRL would load them after the model and the rollout engine have started. They are loaded in a process of their own, because an
import may set variables, take a GPU or a port, or print; and in the directory and the environment of the training.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.checks.view import DATA_SET, OWN_MANAGER, OWN_REWARDS, RunView
from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import did_you_mean
from verl_trgrpo.data.prompts import TOOLS, own_agent_loops
from verl_trgrpo.runs.compose import selected
from verl_trgrpo.runs.environment import training_environment
from verl_trgrpo.runs.keys import AGENT, MANAGER, REWARD, REWARD_MODEL, place_of
from verl_trgrpo.tasks.registry import known_options

# A module that loads a model of its own may take longer; veRL will load it.
_SECONDS = 120.0
_SAMPLER = "trainer.v1.sampler.custom_sampler"
# What veRL's reward managers call a reward function with, and what is added where a model judges.
_GIVEN = ("data_source", "solution_str", "ground_truth", "extra_info")
_GIVEN_WITH_MODEL = ("reward_router_address", "reward_model_tokenizer")

# Writes a line for each object: why it cannot be used, as JSON.
PROGRAM = """
import inspect, json, os, sys
from verl.utils.import_utils import load_extern_object

def problem(path, name, given, base):
    found = load_extern_object(module_path=path, object_name=name)
    if not callable(found):
        return f"{name} is {type(found).__name__}, not a function or class"
    if base and not any(f"{each.__module__}.{each.__name__}" == base for each in getattr(found, "__mro__", ())):
        return f"{name} does not inherit from {base}"
    if given and isinstance(found, type):
        return f"{name} is a class; name a function, or an object of the class"
    if given:
        signature = inspect.signature(found)
        try:
            signature.bind(**dict.fromkeys(given))
        except TypeError as error:
            return f"{name}{signature} {error}; veRL calls it with {', '.join(given)}"
    return ""

with open(sys.argv[1], "w") as answers:
    for wanted in json.loads(sys.argv[2]):
        try:
            reason = problem(*wanted)
        except (Exception, SystemExit) as error:
            cause = error.__cause__ or error  # veRL wraps what a file raises
            reason = f"{type(cause).__name__}: {cause}"
        print(json.dumps(reason), file=answers, flush=True)
os._exit(0)  # whatever the modules started must not hold this up
"""


class _Object(NamedTuple):
    """An object that a run names: its key, its file or ``pkg://MODULE``, its name, what it is called with, its base class."""

    key: str
    path: str
    name: str
    given: Sequence[str] = ()
    base: str = ""


def own_code_findings(view: RunView) -> list[Finding]:
    """Load what the run names of its own Python, in a process of its own.

    Nothing is loaded where Ray gives its workers another environment, or where they may run on other machines.
    """
    config = view.config
    path = selected(config, f"{REWARD}.path")
    findings = []
    if path == OWN_REWARDS and selected(config, f"{REWARD}.name") == "compute_score":
        findings = _option_findings(config)
    elif not path:
        findings = [Finding.not_checked(REWARD, f"{REWARD}.path=null: veRL's own rewards choose by data_source")]
    wanted = [each for each in _own_objects(view) if not each.path.startswith("pkg://verl_trgrpo.")]
    if place := _workers_place(config):
        return findings + [
            Finding.not_checked(each.key, f"{each.key}={each.path}: is loaded by Ray's workers, see {place}")
            for each in wanted
        ]
    for each, reason in zip(wanted, _load(wanted, config.trainer.device == "cpu") if wanted else (), strict=True):
        place = f"{each.key}: {each.name} of {each.path.removeprefix('pkg://')}"
        if reason is None:
            findings.append(Finding.not_checked(each.key, f"{place} was not loaded within {_SECONDS:.0f} s"))
        elif reason:
            findings.append(Finding.error(each.key, f"{place} cannot be used ({reason}); correct it"))
        elif each.given:
            findings.append(Finding.not_checked(REWARD, f"{place}: which data sources it scores was not checked"))
    return findings


def _own_objects(view: RunView) -> Iterator[_Object]:
    """Yield what a run's workers load by name; the files exist."""
    config = view.config
    own_manager = view[f"{MANAGER}.source"] == "importlib" and view[f"{MANAGER}.module.path"] != OWN_MANAGER
    if path := view[f"{REWARD}.path"]:
        options = selected(config, f"{REWARD}.reward_kwargs") or {}
        given = (*_GIVEN, *(_GIVEN_WITH_MODEL if view[f"{REWARD_MODEL}.enable"] else ()), *map(str, options))
        yield _Object(f"{REWARD}.path", path, str(view[f"{REWARD}.name"]), () if own_manager else given)
    if own_manager:
        yield _Object(f"{MANAGER}.module.path", str(view[f"{MANAGER}.module.path"]), str(view[f"{MANAGER}.name"]))
    if view.data_set:
        base = "torch.utils.data.dataset.Dataset"
        yield _Object(DATA_SET, view.data_set, str(view["data.custom_cls.name"]), base=base)
    if (path := view[f"{_SAMPLER}.path"]) and (name := view[f"{_SAMPLER}.name"]):
        yield _Object(f"{_SAMPLER}.path", path, name)
    named = {f"{AGENT}.agent_loop_manager_class": [view[f"{AGENT}.agent_loop_manager_class"]]}
    loops = own_agent_loops(config)
    named[f"{AGENT}.agent_loop_config_path"] = [loops.get(agent) for agent in sorted(view.agents)]
    if (file := view[f"{TOOLS}.tool_config_path"]) and view.may_call_tools:
        tools = OmegaConf.load(Path(file).expanduser()).tools
        named[f"{TOOLS}.tool_config_path"] = [tool.get("class_name") for tool in tools]
    for key, place in ((key, place) for key, names in named.items() for place in names if place):
        module, _, name = str(place).rpartition(".")
        yield _Object(key, f"pkg://{module}", name)


def _option_findings(config: DictConfig) -> list[Finding]:
    """Check that each option of this package's rewards is one that some reward has; otherwise every response would fail."""
    findings, given = [], set(selected(config, f"{REWARD}.reward_kwargs") or ())
    known = known_options() if given else set()  # imports all rewards
    for name in sorted(given - known):
        key = f"{REWARD}.reward_kwargs.{name}"
        fix = f"set {place}" if (place := place_of(key)) else did_you_mean(str(name), sorted(known))
        findings.append(Finding.error(key, f"{key}: no reward has this option; {fix}"))
    return findings


def _load(wanted: Sequence[_Object], on_cpu: bool) -> list[str | None]:
    """Return for each object why it cannot be used, "" if it can, None if the process that loads them takes too long."""
    # Files instead of pipes: what a module started may keep a pipe open after its process has ended.
    with tempfile.TemporaryFile("w+") as said, tempfile.NamedTemporaryFile("r") as answers:
        command = [sys.executable, "-c", PROGRAM, answers.name, json.dumps([each[1:] for each in wanted])]
        environment, late = training_environment(on_cpu, os.devnull), False
        try:
            code = subprocess.run(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=said, timeout=_SECONDS
            ).returncode
        except subprocess.TimeoutExpired:
            late = True
        found: list[str | None] = [json.loads(line) for line in answers]
        if len(found) < len(wanted) and not late:
            said.seek(0)
            found.append(f"exit code {code}: {(said.read().strip().splitlines() or ['no output'])[-1]}")
    return found + [None] * (len(wanted) - len(found))


def _workers_place(config: DictConfig) -> str:
    """Return what gives Ray's workers another environment or machine than the training has here; "" if nothing differs."""
    ray_init = selected(config, "ray_kwargs.ray_init") or {}
    places = {
        "RAY_ADDRESS": os.environ.get("RAY_ADDRESS"),
        "ray_kwargs.ray_init.address": ray_init.get("address"),
        "ray_kwargs.ray_init.runtime_env": any((ray_init.get("runtime_env") or {}).values()),
    }
    return next((name for name, value in places.items() if value), "")
