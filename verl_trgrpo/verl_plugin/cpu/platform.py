"""Register the platform ``cpu`` with veRL."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

from verl_trgrpo.verl_plugin.cpu import chosen

PLATFORM = "cpu"


class CPUDeviceModule(ModuleType):
    """Extend ``torch.cpu`` by what veRL calls of ``torch.cuda``: memory and random state."""

    def __init__(self) -> None:
        super().__init__("verl_trgrpo.verl_plugin.cpu.device_module")

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def memory_allocated(self, *_: Any) -> int:
        """Return the resident memory of this process in bytes."""
        return psutil.Process().memory_info().rss

    def max_memory_allocated(self, *_: Any) -> int:
        """Return the largest resident memory so far in bytes."""
        # The kernel updates the two figures at different moments.
        return max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, self.memory_allocated())

    memory_reserved = memory_allocated
    max_memory_reserved = max_memory_allocated

    def mem_get_info(self, *_: Any) -> tuple[int, int]:
        """Return free and total memory of the machine in bytes."""
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_rng_state(self, *_: Any) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, *_: Any) -> None:
        torch.set_rng_state(state)

    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)

    def empty_cache(self) -> None:
        """Do nothing: there is no cache."""

    ipc_collect = empty_cache
    reset_peak_memory_stats = empty_cache

    def get_device_name(self, *_: Any) -> str:
        return "cpu"


class PlatformCPU(PlatformBase):
    """Use the processor as veRL's device: gloo collectives, no inter-process device memory."""

    def __init__(self) -> None:
        self._device_module = CPUDeviceModule()

    @property
    def device_name(self) -> str:
        return "cpu"

    vendor_name = device_name

    @property
    def device_module(self) -> ModuleType:
        return self._device_module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        # Auto-detection asks every platform. True wherever no GPU is visible would take over the CPU-only head node of a
        # GPU cluster, or a Ray actor without a GPU: so only if chosen by name.
        return chosen()

    def current_device(self) -> Any:
        # veRL passes this to Tensor.to(); an index would mean a GPU.
        return "cpu"

    def device_count(self) -> int:
        return 1

    def _do_nothing(self, *_: Any, **__: Any) -> None:
        """Do nothing: there is one device, synchronous, without a cache, settings of an allocator or a profiler of its own."""

    set_device = synchronize = set_allocator_settings = empty_cache = profiler_start = profiler_stop = cudart = (
        _do_nothing
    )

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        # The ranks occupy logical GPU slots of Ray, which keeps its books under this name.
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self) -> str:
        # veRL's resource check and placement count this; the configuration declares logical slots.
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False  # weights go to vLLM through shared memory

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield


def register_platform() -> None:
    """Make ``VERL_PLATFORM=cpu`` known to veRL, and prepare this process when it is set."""
    PlatformRegistry.register(platform=PLATFORM)(PlatformCPU)
    if chosen():
        from verl_trgrpo.verl_plugin.cpu.vllm import provide_vllm_distribution

        provide_vllm_distribution()


register_platform()
