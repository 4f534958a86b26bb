"""Measure the efficiency of weighted gradients of a model, before any training, or the sharpness of its loss.

examples, from a checkout:
  python -m studies.gradients.run efficiency --model models/start --data train.parquet --out DIR --shaping sigmoid power
  python -m studies.gradients.run sharpness --model runs/grpo/global_step_50 runs/tr_grpo/global_step_50 --data train.parquet \\
      --out DIR

output, in --out:
  efficiency.json and efficiency.png, or sharpness.json; README.md explains each figure.

Exit code: 0 fine, 1 failed, 2 wrong input, 130 interrupted; the same command goes on with an efficiency."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from studies.gradients.efficiency import EfficiencyOptions, analyze_efficiency, efficiency_text, plot_efficiency
from studies.gradients.sharpness import SharpnessOptions, analyze_sharpness, sharpness_text
from verl_trgrpo.analysis.rollouts import open_policy
from verl_trgrpo.common.files import write_json
from verl_trgrpo.common.options import exit_code, parse_options
from verl_trgrpo.common.progress import Progress, interruptible
from verl_trgrpo.runs.record import provenance


def efficiency(options: EfficiencyOptions, progress: Progress) -> str:
    """Measure the efficiency of each shaping, write the results, and return them as text."""
    path = options.out / "efficiency.json"
    results = _head(options) | analyze_efficiency(*open_policy(options, options.model, options.out), options, progress)
    plot_efficiency(results, path.with_suffix(".png"), options.model)
    write_json(path, results, default=str)
    return f"{efficiency_text(results)}\n\n{path}, {path.with_suffix('.png')}"


def sharpness(options: SharpnessOptions, progress: Progress) -> str:
    """Measure the sharpness of each model, write the results, and return them as text."""
    path = options.out / "sharpness.json"
    found = {
        model: analyze_sharpness(*open_policy(options, model, options.out), options, progress)
        for model in options.model
    }
    results = _head(options) | {"models": {model: [asdict(at) for at in radii] for model, radii in found.items()}}
    write_json(path, results, default=str)
    return f"{sharpness_text(found)}\n\n{path}"


def _head(options: Any) -> dict[str, Any]:
    return {"options": asdict(options)} | provenance(Path(__file__).parent)


MEASUREMENTS: dict[str, Any] = {
    "efficiency": (efficiency, EfficiencyOptions),
    "sharpness": (sharpness, SharpnessOptions),
}


def main(argv: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    name, *words = argv or [""]
    if name not in MEASUREMENTS:
        sys.stdout.write(f"{__doc__}\n")
        return 0 if name in ("-h", "--help") else 2
    measure, options_class = MEASUREMENTS[name]
    options = parse_options(options_class, f"python -m studies.gradients.run {name}", argv=words)
    with interruptible() as progress:
        sys.stdout.write(f"{measure(options, progress)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(partial(main, sys.argv[1:])))
