"""Show what an installation of this package changes in an environment with veRL and its own choice of vLLM and torch.

    python requirements/gpu_dry_run.py

Resolves ``verl[vllm]==0.9.1`` without installing it, records the result in an empty environment as if it were installed, and
asks pip what ``.[all]`` would install there. Needs the package index, but neither a GPU nor much disk. Exit code 1 if any
package would change.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASE, ADDED = "verl[vllm]==0.9.1", f"{ROOT}[all]"


def dry_run(python: Path, requirement: str, report: Path) -> dict[str, dict]:
    """Return the metadata of what pip would install, by name."""
    options = ["--quiet", "--dry-run", "--report", str(report)]
    subprocess.run([str(python), "-m", "pip", "install", *options, requirement], check=True)
    found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return {metadata["name"].lower().replace("_", "-"): metadata for metadata in found}


def record(site: Path, metadata: dict) -> None:
    """Write the metadata of a distribution, so that pip takes it for installed."""
    directory = site / f"{metadata['name'].replace('-', '_')}-{metadata['version']}.dist-info"
    directory.mkdir()
    lines = [f"{key}: {metadata[key.lower()]}" for key in ("Name", "Version")]
    lines += [f"Requires-Dist: {text}" for text in metadata.get("requires_dist", [])]
    lines += [f"Provides-Extra: {text}" for text in metadata.get("provides_extra", [])]
    (directory / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines]) + "\n")
    (directory / "RECORD").write_text("")
    (directory / "INSTALLER").write_text("pip\n")


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        environment, report = Path(directory, "environment"), Path(directory, "report.json")
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        python = environment / "bin" / "python"
        before = dry_run(python, BASE, report)
        [site] = environment.glob("lib/python*/site-packages")
        for metadata in before.values():
            record(site, metadata)
        added = dry_run(python, ADDED, report)
    changed = 0
    for name, metadata in sorted(added.items()):
        old = before.get(name, {}).get("version")
        changed += old is not None
        print(f"{name} {metadata['version']}{'' if old is None else f', changed from {old}'}")
    print(f"{len(before)} packages of {BASE}: {changed} changed, {len(added) - changed} added")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
