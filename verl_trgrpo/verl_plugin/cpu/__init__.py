"""Run veRL on a machine without an accelerator: platform, FSDP2 engine, vLLM adaptations. Active only when chosen.

Chosen means the variables of :data:`CPU_ENVIRONMENT` together with ``platform=cpu`` in the configuration (``+platform=cpu`` on
stock veRL); the launcher sets both when it finds no accelerator.
"""

import os

CPU_ENVIRONMENT = {
    # veRL's own switch between platforms.
    "VERL_PLATFORM": "cpu",
    # GiB of key-value cache for each vLLM replica: plenty for a model of a few million parameters, enough for a batch of
    # SmolLM2-135M's responses.
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Binding threads to cores would pin every replica to the same ones.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Lets the engine's process do the work of a single rank, which saves a process that imports everything again.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Compiling vLLM's few small functions takes 20 seconds on a fresh machine, more than they take in a small training.
    "TORCH_COMPILE_DISABLE": "1",
    # One thread each by default: a dozen processes share the cores. The FSDP engine raises its own number.
    "OMP_NUM_THREADS": "1",
    # Threads that wait by spinning take the cores from whoever they wait for: steps took ten times as long.
    "OMP_WAIT_POLICY": "PASSIVE",
}


def chosen() -> bool:
    """Return True if this process is to train on the CPU (``VERL_PLATFORM=cpu``)."""
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"


def lacking_variables() -> str:
    """Return the variables that this process lacks, as words for ``export``; "" if it has all."""
    lacking = [name for name in CPU_ENVIRONMENT if not (chosen() if name == "VERL_PLATFORM" else os.environ.get(name))]
    return " ".join(f"{name}={CPU_ENVIRONMENT[name]}" for name in lacking)
