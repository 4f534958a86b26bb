"""veRL's FSDP2 engine on CPUs. Imported by every worker through ``actor_rollout_ref.model.external_lib``.

That key is veRL's own way to run code in a worker before its engine is built; nothing here happens in other runs.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any

import torch
from verl.workers import engine_workers
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead

from verl_trgrpo.verl_plugin.cpu.platform import chosen


class CPUFSDPEngineWithLMHead(FSDPEngineWithLMHead):
    """The FSDP2 language-model engine without the offload policy of forward-only (reference) models.

    The policy pins host memory, which takes an accelerator; and here there is nowhere to offload from.
    """

    def _build_fsdp_module(self, module: Any) -> Any:
        config = self.engine_config
        self.engine_config = dataclasses.replace(config, forward_only=False, offload_policy=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = config


def _install() -> None:
    if not chosen():
        return
    # Ray gives each worker one thread. The ranks train while everything else waits, so they share the cores.
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ.get("WORLD_SIZE", "1"))))
    if "cpu" in EngineRegistry._engines["language_model"]["fsdp2"]:
        return
    EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")(CPUFSDPEngineWithLMHead)
    # veRL asks torch for "cpu:gloo,<device>:<backend>", a duplicate when the device is the CPU. Remove when veRL composes
    # the string without duplicates, or lets a platform name it.
    engine_workers.initialize_global_process_group_ray = functools.partial(
        engine_workers.initialize_global_process_group_ray, backend="cpu:gloo"
    )


_install()
