"""Check what a run needs of the machine that trains it: packages, GPUs and search servers."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from omegaconf import DictConfig

from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.extras import install
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.runs.compose import loggers_of, selected
from verl_trgrpo.runs.environment import accelerator_count
from verl_trgrpo.runs.keys import GPUS, REWARD_MODEL, ROLLOUT
from verl_trgrpo.tasks.search_qa.search_options import SEARCH_AGENT

_SEARCH = f"{ROLLOUT}.custom.search"
_STORAGE = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
# Packages of the rollout engines.
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm"}
# Packages of the trackers that veRL imports only when training starts.
_PACKAGES = {
    "wandb": "wandb", "mlflow": "mlflow", "swanlab": "swanlab", "tensorboard": "tensorboard", "clearml": "clearml",
    "trackio": "trackio", "vemlp_wandb": "volcengine_ml_platform",
}  # fmt: skip
# A cluster that is up answers in a few seconds.
_SECONDS = 60.0
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


def machine_findings(view: RunView) -> list[Finding]:
    """Check for packages, GPUs and search servers that a run needs.

    On the machine that trains everything it lacks is an error, unless the run is finished, and a Ray cluster and search servers
    are asked once. Elsewhere what the machine lacks is "not checked", and nothing is asked.
    """
    with suppress(ValueError):  # run.json is damaged; the check of what the run resumes from says so
        if view.trains and view.finished:
            return []
    config, level = view.config, Level.ERROR if view.trains else Level.NOT_CHECKED
    findings = [Finding(level, key, message) for key, message in _missing_packages(view)]
    if (cluster := _cluster(config)) and not view.trains:
        reason = f"{cluster[0]} is asked for its GPUs and CPUs when training starts"
        findings.append(view.finding(GPUS, reason, Level.NOT_CHECKED))
    else:
        findings += _resource_findings(view, cluster, level)
    if SEARCH_AGENT in view.agents and view.trains:
        findings += _server_findings(config)
    elif SEARCH_AGENT in view.agents:
        findings.append(view.finding(f"{_SEARCH}.url", "is asked when training starts", Level.NOT_CHECKED))
    return findings


def _missing_packages(view: RunView) -> Iterator[tuple[str, str]]:
    """Yield key and message for the rollout engine, and each tracker, whose package is not installed."""
    engine = view.config.actor_rollout_ref.rollout.name
    package = _ENGINES.get(engine)
    if package and importlib.util.find_spec(package) is None:
        fix = (
            f"on a GPU machine {install('gpu')}, elsewhere {install('cpu')}"
            if engine == "vllm"
            else "install it as veRL's documentation says, or use vllm"
        )
        yield f"{ROLLOUT}.name", f"{ROLLOUT}.name={engine}: {package} is not installed on this machine; {fix}"
    for name in loggers_of(view.config):
        package = _PACKAGES.get(name)
        if package and importlib.util.find_spec(package) is None:
            message = f"trainer.logger={name}: {package} is not installed on this machine; pip install {package}, or leave it out"
            yield "trainer.logger", message


def _cluster(config: DictConfig) -> tuple[str, str] | None:
    """Return what names the Ray cluster that the run will connect to, and its address; None if it starts its own."""
    key = "ray_kwargs.ray_init.address"
    started_here = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")  # by `ray start`
    local = started_here.read_text().strip() if started_here.is_file() else None
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
        return [Finding(level, GPUS, f"{place} does not answer ({error}); start it, or correct its address")]
    findings = []
    if found_gpus < gpus and (cluster or told["gpus"] is None):  # else Ray has what it is told
        more = f", {gpus} with those of other pools" if gpus > view.gpus else ""
        reason = f"times trainer.nnodes={trainer.nnodes} makes {view.gpus} GPUs{more}, {place} has {found_gpus}"
        findings.append(view.finding(GPUS, f"{reason}; lower it, or train where they are", level))
    has = found_cpus if cluster or told["cpus"] is None else told["cpus"]
    if has < cpus and (view.trains or has == told["cpus"]) and (cluster or trainer.nnodes == 1):
        key = "ray_kwargs.ray_init.num_cpus"
        reason = (
            f"Ray has {has} CPUs for a run that reserves {cpus} ({_CPUS_PER_GPU} for each GPU, {cpus - gpus * _CPUS_PER_GPU} "
            f"for others), and would wait forever; set it to {cpus}, Ray does not count"
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
            [sys.executable, "-c", _COUNT, address], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"within {_SECONDS:.0f} s") from error
    except OSError as error:
        raise RuntimeError(str(error)) from error
    if asked.returncode:
        raise RuntimeError((asked.stderr.strip().splitlines() or ["no output"])[-1])
    gpus, cpus = asked.stdout.split()[-2:]
    return int(gpus), int(cpus)


def _server_findings(config: DictConfig) -> list[Finding]:
    from verl_trgrpo.tasks.search_qa.client import failures_of_servers
    from verl_trgrpo.tasks.search_qa.search_options import read_options

    try:
        options = read_options(selected(config, _SEARCH))
        failures = failures_of_servers(options)
    except ValueError as error:
        return [Finding.error(_SEARCH, str(error))]
    key, level = f"{_SEARCH}.url", Level.ERROR if len(failures) == len(options.urls) else Level.WARNING
    fix = "start it (verl-trgrpo search serve), or correct the address"
    return [Finding(level, key, f"{key}={url}: {failure}; {fix}") for url, failure in failures.items()]
