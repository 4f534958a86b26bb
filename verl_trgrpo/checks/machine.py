"""Check what a run needs of the machine that trains it: packages, GPUs, and Python code of the run's own.

veRL would load that code after the model and the rollout engine have started. It is loaded in a process of its own, because an
import may set variables, take a GPU or a port, or print; and in the directory and the environment of the training.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig

from verl_trgrpo.checks.trackers import CLIENTS
from verl_trgrpo.checks.view import DATA_SET, OWN_MANAGER, OWN_REWARDS, RunView
from verl_trgrpo.common.extras import install_command
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.foreign import load_yaml, read_foreign
from verl_trgrpo.common.text import count_of, did_you_mean
from verl_trgrpo.data.prompts import TOOLS, own_agent_loops
from verl_trgrpo.runs.checkpoints import checkpoint_bytes
from verl_trgrpo.runs.compose import loggers_of
from verl_trgrpo.runs.environment import accelerator_count, training_environment
from verl_trgrpo.runs.keys import (
    ACTOR,
    AGENT,
    GPUS,
    MANAGER,
    MODEL,
    MODEL_PATH,
    REWARD,
    REWARD_MODEL,
    ROLLOUT,
    place_of,
    selected,
)
from verl_trgrpo.runs.weights import parameter_count
from verl_trgrpo.tasks import GIVEN_WITH_MODEL
from verl_trgrpo.tasks.registry import known_options
from verl_trgrpo.verl_plugin.cpu import lacking_variables

_STORAGE = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
# Packages of the rollout engines.
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm"}
_BUILT_IN = ("console", "file")
# A cluster that is up answers in a few seconds.
_CLUSTER_SECONDS = 60.0
# Prints the GPUs, counted as veRL does, and the CPUs of a cluster.
_COUNT = """
import sys, ray
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
resources = ray.cluster_resources()
print(int(resources.get("GPU", 0) or resources.get("NPU", 0)), int(resources.get("CPU", 0)))
"""
# CPUs that veRL reserves with each GPU, for the controller of its TransferQueue and to start its driver; every storage unit of
# the queue takes one more.
_CPUS_PER_GPU, _OTHER_CPUS = 3, 2
# A module that loads a model of its own may take longer; veRL will load it.
_SECONDS = 120.0
_SAMPLER = "trainer.v1.sampler.custom_sampler"
# What veRL's reward managers call a reward function with; GIVEN_WITH_MODEL is added where a model judges.
_GIVEN = ("data_source", "solution_str", "ground_truth", "extra_info")

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


def disk_findings(view: RunView) -> list[Finding]:
    """Warn where the checkpoints that a run keeps at once need more than is free, as far as the model is on this machine."""
    frequency, keep, model = (
        view["trainer.save_freq"],
        view["trainer.max_actor_ckpt_to_keep"],
        Path(view[MODEL_PATH] or ""),
    )
    if not isinstance(frequency, int) or frequency <= 0 or not model.is_dir():
        return []
    contents = {*(view[f"{ACTOR}.checkpoint.save_contents"] or ())}
    if view[f"{MODEL}.lora_rank"] or view[f"{MODEL}.lora_adapter_path"]:
        # Adam's moments are those of the adapter; the weights are whole unless veRL is told otherwise.
        contents -= {"optimizer", "model" if view[f"{ACTOR}.checkpoint.save_lora_only"] else ""}
    try:
        size = checkpoint_bytes(parameter_count(model), contents)
    except Exception:  # the check of the model names an unreadable file
        return []
    saves = -(-view.steps // frequency) if view.steps else 2
    # The old one stays until the new one is complete; without a number all stay.
    count = min(saves, max(2, keep)) if keep and keep > 0 else saves
    place = Path(view.run.directory).absolute()
    free = shutil.disk_usage(next(each for each in (place, *place.parents) if each.exists())).free
    if count * size <= free:
        return []
    reason = (
        f"{count_of(count, 'checkpoint')} of {size / 1e9:.1f} GB {'need' if count > 1 else 'needs'} {count * size / 1e9:.1f} GB, "
        f"and {free / 1e9:.1f} GB are free there; name a directory on a larger disk, or set "
        f"trainer.{'max_actor_ckpt_to_keep=2' if 2 * size <= free else 'save_freq=-1'}"
    )
    return [view.finding("trainer.default_local_dir", reason, Level.WARNING if view.trains else Level.NOT_CHECKED)]


def machine_findings(view: RunView) -> list[Finding]:
    """Check for packages and GPUs that a run needs.

    On the machine that trains everything it lacks is an error, unless the run is finished, and a Ray cluster is asked
    once. Elsewhere what the machine lacks is "not checked", and nothing is asked.
    """
    if view.trains and not view.starts:
        return []
    config, level = view.config, Level.ERROR if view.trains else Level.NOT_CHECKED
    findings = [Finding(level, key, message) for key, message in _missing_packages(view)]
    findings += disk_findings(view)
    by_verl = any(
        word.startswith("+platform=cpu") for word in view.run.arguments
    )  # a stock configuration has no such group
    if by_verl and not view.trains and (lacking := lacking_variables()):
        message = f"python -m verl.trainer.main_ppo needs `export {lacking}`, which `verl-trgrpo train` sets"
        findings.append(Finding.not_checked("trainer.device", f"platform=cpu: {message}"))
    if (cluster := cluster_of(config)) and not view.trains:
        reason = f"{cluster[0]} is asked for its GPUs and CPUs when training starts"
        findings.append(view.finding(GPUS, reason, Level.NOT_CHECKED))
    else:
        findings += _resource_findings(view, cluster, level)
    return findings


def _missing_packages(view: RunView) -> Iterator[tuple[str, str]]:
    """Yield key and message for the rollout engine, and each tracker, whose package is not installed."""
    engine = view.config.actor_rollout_ref.rollout.name
    package = _ENGINES.get(engine)
    if package and importlib.util.find_spec(package) is None:
        fix = (
            f"on a GPU machine {install_command('gpu')}, elsewhere {install_command('cpu')}"
            if engine == "vllm"
            else f"install the package as veRL's documentation says, or set {ROLLOUT}.name=vllm"
        )
        yield f"{ROLLOUT}.name", f"{ROLLOUT}.name={engine}: {package} is not installed on this machine; {fix}"
    for name in loggers_of(view.config):
        package = "" if name in _BUILT_IN else CLIENTS.get(name, name)
        if package and importlib.util.find_spec(package) is None:
            fix = f"pip install {package}, or remove {name} from trainer.logger"
            yield "trainer.logger", f"trainer.logger={name}: {package} is not installed on this machine; {fix}"


def cluster_of(config: DictConfig) -> tuple[str, str] | None:
    """Return what names the Ray cluster that the run will connect to, and its address; None if it starts its own."""
    key = "ray_kwargs.ray_init.address"
    temporary = os.environ.get("RAY_TMPDIR", os.environ.get("TMPDIR", "/tmp"))
    # Written by `ray start`, in a directory that everybody may write into.
    started_here = Path(temporary, "ray", "ray_current_cluster")
    own = started_here.exists() and started_here.lstat().st_uid in (0, os.getuid())
    local = read_foreign(started_here).decode(errors="replace").strip() if own else None
    # In Ray's order: an address that is given counts more than that of the environment, "auto" less.
    places = {key: selected(config, key), "RAY_ADDRESS": os.environ.get("RAY_ADDRESS"), str(started_here): local}
    known = ((name, address) for name, address in places.items() if address and address != "auto")
    name, address = next(known, (key, places[key]))
    return (f"{name}={address}", address) if address and address != "local" else None


def _resource_findings(view: RunView, cluster: tuple[str, str] | None, level: Level) -> list[Finding]:
    """Compare what the run's processes reserve with what the cluster has: Ray waits forever for what it does not have."""
    trainer, gpus = view.config.trainer, _gpus_of_pools(view)
    cpus = gpus * _CPUS_PER_GPU + _OTHER_CPUS + (view[_STORAGE] or 0)
    place = f"the cluster of {cluster[0]}" if cluster else "this machine"
    told = {name: view[f"ray_kwargs.ray_init.num_{name}"] for name in ("gpus", "cpus")}
    try:
        found_gpus, found_cpus = _of_cluster(cluster[1]) if cluster else (accelerator_count(), os.cpu_count() or 1)
    except RuntimeError as error:
        return [Finding(level, GPUS, f"{place} does not answer ({error}); start the cluster, or correct its address")]
    findings = []
    if found_gpus < gpus and (cluster or told["gpus"] is None):  # else Ray has what it is told
        more = f", {gpus} with those of other pools" if gpus > view.gpus else ""
        needed = count_of(view.gpus, "GPU") + more
        reason = f"with trainer.nnodes={trainer.nnodes} the run needs {needed}, and {place} has {found_gpus}"
        plus = "" if "platform" in view.run.choices else "+"
        fix = f"lower {GPUS}" if found_gpus else f"train on a machine with GPUs, or add {plus}platform=cpu"
        findings.append(view.finding(GPUS, f"{reason}; {fix}", level))
    has = found_cpus if cluster or told["cpus"] is None else told["cpus"]
    if has < cpus and (view.trains or has == told["cpus"]) and (cluster or trainer.nnodes == 1):
        key = "ray_kwargs.ray_init.num_cpus"
        reason = (
            f"Ray has {has} CPUs for a run that reserves {cpus} ({_CPUS_PER_GPU} for each GPU, {cpus - gpus * _CPUS_PER_GPU} "
            f"for others), and would wait forever; set {key}={cpus}, which Ray takes without counting"
        )
        findings.append(view.finding(key, reason))
    return findings


def _gpus_of_pools(view: RunView) -> int:
    """Return the GPUs of trainer, separate rollout and separate reward model together."""
    pools = {
        ROLLOUT: view["trainer.v1.trainer_mode"] == "separate_async",
        REWARD_MODEL: view[f"{REWARD_MODEL}.enable"] and view[f"{REWARD_MODEL}.enable_resource_pool"],
    }
    sizes = [
        (view[f"{key}.nnodes"] or 0) * (view[f"{key}.n_gpus_per_node"] or 0) for key, used in pools.items() if used
    ]
    return view.gpus + sum(sizes)


def _of_cluster(address: str) -> tuple[int, int]:
    """Return the GPUs and CPUs of a Ray cluster, asked by a process of its own: one process connects to one cluster.

    Raises:
        RuntimeError: it cannot be reached; the message has the last line of Ray's.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdigit():  # Ray would try for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        asked = subprocess.run(
            [sys.executable, "-c", _COUNT, address], capture_output=True, text=True, timeout=_CLUSTER_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"within {_CLUSTER_SECONDS:.0f} s") from error
    except OSError as error:
        raise RuntimeError(str(error)) from error
    if asked.returncode:
        raise RuntimeError((asked.stderr.strip().splitlines() or ["no output"])[-1])
    gpus, cpus = asked.stdout.split()[-2:]
    return int(gpus), int(cpus)


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
            findings.append(Finding.error(each.key, f"{place} cannot be used ({reason}); correct the file"))
        elif each.given:
            findings.append(Finding.not_checked(REWARD, f"{place}: which data sources it scores was not checked"))
    return findings


def _own_objects(view: RunView) -> Iterator[_Object]:
    """Yield what a run's workers load by name; the files exist."""
    config = view.config
    own_manager = view[f"{MANAGER}.source"] == "importlib" and view[f"{MANAGER}.module.path"] != OWN_MANAGER
    if path := view[f"{REWARD}.path"]:
        options = selected(config, f"{REWARD}.reward_kwargs") or {}
        given = (*_GIVEN, *(GIVEN_WITH_MODEL if view[f"{REWARD_MODEL}.enable"] else ()), *map(str, options))
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
        tools = load_yaml(Path(file).expanduser()).tools
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
