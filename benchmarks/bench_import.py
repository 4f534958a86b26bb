"""``import verl`` with and without this plugin, in fresh processes taken in turns."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from paired import against, paired_times, report


def importer(statement: str, plugins: str):
    """A closure that starts Python, imports and ends."""
    environment = {**os.environ, "VERL_USE_EXTERNAL_PLUGINS": plugins}

    def call() -> None:
        subprocess.run([sys.executable, "-c", statement], env=environment, check=True, capture_output=True)

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    arguments = parser.parse_args()
    # What every training process imports in the end, whichever loss it uses.
    losses = "import verl, verl.trainer.ppo.core_algos"
    results = {}
    for statement in ("import verl", losses):
        calls = {"without the plugin": importer(statement, "none"), "with": importer(statement, "auto")}
        results[statement] = against(paired_times(calls, arguments.repeats, warm_up=1), "without the plugin")
    report("import", results, ("verl", "torch"), arguments.out)


if __name__ == "__main__":
    main()
