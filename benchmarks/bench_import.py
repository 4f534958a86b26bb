"""``import verl`` with and without this plugin, in fresh processes taken in turns."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

from paired import compared, parser, report

# The second is what every training process imports in the end, whichever loss it uses.
STATEMENTS = ("import verl", "import verl, verl.trainer.ppo.core_algos")


def run(statement: str, plugins: str) -> None:
    """Start Python, import and end."""
    environment = {**os.environ, "VERL_USE_EXTERNAL_PLUGINS": plugins}
    subprocess.run([sys.executable, "-c", statement], env=environment, check=True, capture_output=True)


def main() -> None:
    arguments = parser(__doc__, repeats=4).parse_args()
    results = {}
    for statement in STATEMENTS:
        calls = {"without the plugin": partial(run, statement, "none"), "with": partial(run, statement, "auto")}
        results[statement] = compared(calls, "without the plugin", arguments.repeats, warm_up=1)
    report("import", results, arguments.out)


if __name__ == "__main__":
    main()
