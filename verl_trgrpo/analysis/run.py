"""The two measurements of ``verl-trgrpo analyze``, from options to files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verl_trgrpo.analysis.gradients import analyze_gradients
from verl_trgrpo.analysis.options import AnalyzeOptions
from verl_trgrpo.analysis.rollouts import load_policy
from verl_trgrpo.analysis.sharpness import analyze_sharpness
from verl_trgrpo.analysis.show import gradient_text, plot_gradients, sharpness_text
from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.progress import Progress
from verl_trgrpo.evaluation.checkpoint import find_model, merged_model


@dataclass(frozen=True)
class Analysis:
    """The result as text, the files that hold it, and whether all tokens lie within the envelope."""

    text: str
    files: tuple[Path, ...]
    within_envelope: bool = True


def analyze(options: AnalyzeOptions, progress: Progress) -> Analysis:
    """Measure gradients or sharpness and write the results into ``options.directory``.

    Raises:
        ValueError: for a model, device, data file or parameter name that is not there, or equal rewards in every group.
        RuntimeError: when a sharded checkpoint cannot be merged.
    """
    for name in options.model:
        find_model(name)
    options.directory.mkdir(parents=True, exist_ok=True)
    return (_sharpness if options.sharpness else _gradients)(options, progress)


def _gradients(options: AnalyzeOptions, progress: Progress) -> Analysis:
    (name,) = options.model
    figures, table, norms = analyze_gradients(*_policy(name, options), options, progress)
    path = options.directory / "gradients.json"
    _write(path, options, figures)
    title = f"{name}: {figures['tokens']:,} tokens of {options.prompts * options.samples} responses"
    picture = plot_gradients(figures, table, norms, options.directory / "gradients.png", title)
    return Analysis(gradient_text(figures), (path, picture), figures["envelope"]["holds"])


def _sharpness(options: AnalyzeOptions, progress: Progress) -> Analysis:
    found = {}
    for name in options.model:
        try:
            found[name] = analyze_sharpness(*_policy(name, options), options, progress)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error  # one of several
    path = options.directory / "sharpness.json"
    _write(path, options, {"models": {name: [asdict(at) for at in radii] for name, radii in found.items()}})
    return Analysis(sharpness_text(found), (path,))


def _policy(name: str, options: AnalyzeOptions) -> tuple[Any, Any]:
    return load_policy(merged_model(find_model(name), options.directory), options.device)


def _write(path: Path, options: AnalyzeOptions, results: dict[str, Any]) -> None:
    given = asdict(options) | {"data": str(options.data), "out": str(options.directory)}
    write_text(path, json.dumps({"options": given, **results}, indent=2) + "\n")
