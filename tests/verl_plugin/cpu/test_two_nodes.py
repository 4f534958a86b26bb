"""The script benchmarks/two_nodes.py; its training takes eight minutes and is run by hand, see docs/parallelism.md."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "two_nodes.py"


def two_nodes(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)


def test_a_kill_after_the_last_step_is_refused(tmp_path):
    result = two_nodes("--out", str(tmp_path), "--steps", "2", "--save-freq", "2")
    assert result.returncode == 2
    assert result.stderr.startswith("error: --save-freq 2 must lie between 1 and --steps 2 minus 1")
