"""The two measurements of ``verl-trgrpo analyze``, from options to files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verl_trgrpo.analysis.gradients import analyze_gradients, chosen_parameters
from verl_trgrpo.analysis.options import AnalyzeOptions
from verl_trgrpo.analysis.rollouts import Rollout, load_policy, sample_rollouts
from verl_trgrpo.analysis.sharpness import analyze_sharpness
from verl_trgrpo.analysis.show import gradient_text, plot_gradients, sharpness_text
from verl_trgrpo.analysis.tokens import Token, choose, look_at, write_tokens
from verl_trgrpo.common.files import write_json
from verl_trgrpo.common.progress import Progress
from verl_trgrpo.evaluation.checkpoint import find_model, merged_model, model_label
from verl_trgrpo.runs.run_directory import provenance


def analyze(options: AnalyzeOptions, progress: Progress) -> tuple[str, bool]:
    """Measure gradients or sharpness and write the results into ``options.directory``.

    Returns:
        the result as text, and whether all tokens lie within the envelope.

    Raises:
        ValueError: for a device, model, data file or parameter name that is not there, or equal rewards in every group.
        RuntimeError: when a sharded checkpoint cannot be merged.
    """
    places = {name: find_model(name) for name in options.model}
    if options.directory.is_file():
        raise ValueError(f"--out {options.directory} is a file; name a directory")
    if not options.data.is_file():
        raise ValueError(f"--data {options.data} does not exist; name a parquet file with prompts")
    options.directory.mkdir(parents=True, exist_ok=True)
    policies = (load_policy(merged_model(place, options.directory), options.device) for place in places.values())
    results: dict[str, Any] = {"options": asdict(options)} | provenance(Path(__file__).parent)
    within_envelope = True
    if options.sharpness:
        path = options.directory / "sharpness.json"
        found = {
            name: analyze_sharpness(*policy, options, progress) for name, policy in zip(places, policies, strict=True)
        }
        results["models"] = {name: [asdict(at) for at in radii] for name, radii in found.items()}
        text = f"{sharpness_text(found)}\n\n{path}"
    else:
        tokenizer, model = next(policies)
        if not options.only_tokens:
            chosen_parameters(model, options.parameters)  # a wrong name is said before any work
        rollouts = sample_rollouts(tokenizer, model, options, progress)
        page = _show_tokens(tokenizer, model, rollouts, options, progress)
        if options.only_tokens:
            return str(page), True
        path = options.directory / "gradients.json"
        figures, at_logits, norms = analyze_gradients(model, rollouts, options, progress)
        results |= figures
        title = f"{options.model[0]}: {figures['tokens']:,} tokens of {len(rollouts)} responses"
        plot_gradients(figures, at_logits, norms, path.with_suffix(".png"), title)
        text = f"{gradient_text(figures)}\n\n{path}, {path.with_suffix('.png')}, {page}"
        within_envelope = figures["envelope"]["holds"]
    write_json(path, results, default=str)
    return text, within_envelope


def _show_tokens(
    tokenizer: Any, model: Any, rollouts: Sequence[Rollout], options: AnalyzeOptions, progress: Progress
) -> Path:
    """Write ``tokens.html`` for the first shaping."""
    name = options.shaping[0]
    shown = look_at(
        tokenizer, model, choose(rollouts, options.samples, options.tokens), options.shapings[name], progress
    )
    tokens = [token for one in shown for token in one.tokens]
    rare = [token for token in tokens if token.prob < 0.25]
    figures = {"tokens with p < 0.25": f"{len(rare) / len(tokens):.1%} of those shown"}
    if any(one.advantage for one in shown):
        figures["their share of |A| (1 - p)"] = f"{_share(rare, tokens, 'plain'):.1%}"
        figures["their share of |A| w (1 - p)"] = f"{_share(rare, tokens, 'gradient'):.1%}"
    else:
        figures["rewards"] = "equal in every group, so that A = 0 and no token has a gradient"
    path = options.directory / "tokens.html"
    write_tokens(path, f"What {name} does to the tokens of {model_label(options.model[0])}", name, shown, figures)
    return path


def _share(some: Sequence[Token], of: Sequence[Token], figure: str) -> float:
    return sum(getattr(token, figure) for token in some) / sum(getattr(token, figure) for token in of)
