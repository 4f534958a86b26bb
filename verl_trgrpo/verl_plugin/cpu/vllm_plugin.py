"""What vLLM's processes need for weight updates on CPUs; vLLM calls it through ``vllm.general_plugins``."""

from __future__ import annotations

import os


def register() -> None:
    """Keep linear layers unpacked when training on the CPU; do nothing in any other run.

    After loading, vLLM's CPU build packs each linear layer for oneDNN and drops the original weight, so a later weight
    update finds no parameter to write to. Its own fall-back, a plain torch linear, keeps the weight. Remove when vLLM
    can reload packed layers.
    """
    if os.environ.get("VERL_PLATFORM", "").strip().lower() != "cpu":
        return
    from vllm import _custom_ops

    _custom_ops._supports_onednn = False
    os.environ["VLLM_CPU_SGL_KERNEL"] = "0"
