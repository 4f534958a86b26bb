"""Programs outside the package answer a wrong argument before they import what takes seconds."""

import re
import subprocess
import sys

from tests.scripts import ROOT

FOLDERS = ("recipes", "examples", "studies", "benchmarks", "docs", "requirements")
# Whose options are made of what they import; a new program does not belong here.
IMPORT_FIRST = {
    "benchmarks/bench_actor_update.py", "benchmarks/bench_advantages.py", "benchmarks/bench_loss.py", "benchmarks/gpu_check.py",
    "examples/makers/warm_start.py", "studies/chains/run.py", "studies/gradients/sharpness.py",
    "studies/gradients/token_gradients.py", "studies/gradients/tokens.py", "studies/trainer.py",
    "studies/update_effects/run.py", "docs/plot_tokens.py",
}  # fmt: skip
CODE = """
import runpy, sys
for name in sys.argv[1:]:
    sys.argv = [name, "--no-such-option"]
    try:
        sys.path.insert(0, name.rpartition("/")[0])
        runpy.run_path(name, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code
    heavy = sorted({"torch", "transformers", "verl", "ray", "vllm"} & sys.modules.keys())
    print("PROGRAM", name, code, heavy)
    if heavy:
        break
"""


def programs():
    """The programs that read arguments."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "__main__" in text and re.search(r"parse_args|parse_options|tyro\.cli|subcommand_cli|parser\(", text):
                yield str(path.relative_to(ROOT))


def test_a_wrong_argument_is_answered_before_heavy_imports():
    found = [*programs()]
    assert {*found} > IMPORT_FIRST and "recipes/minimal/train.py" in found
    asked = [name for name in found if name not in IMPORT_FIRST]
    result = subprocess.run([sys.executable, "-c", CODE, *asked], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line for line in result.stdout.splitlines() if line.startswith("PROGRAM")]
    assert lines == [f"PROGRAM {name} 2 []" for name in asked], result.stderr[-2000:]
