"""Options, files, tables and picture of ``verl-trgrpo analyze``: gradients of tokens, a page of tokens, or sharpness."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_trgrpo.common.files import replaced_file, write_json
from verl_trgrpo.common.findings import messages_of, raise_invalid, range_errors
from verl_trgrpo.common.progress import Progress
from verl_trgrpo.common.text import text_table
from verl_trgrpo.evaluation.checkpoint import config_of_run, find_model, merged_model, model_label

if TYPE_CHECKING:  # they import torch, which --help does not need
    import torch

    from verl_trgrpo.analysis.gradients import LogitGradients
    from verl_trgrpo.analysis.sharpness import Sharpness
    from verl_trgrpo.core import Shaping

UNIFORM = "uniform"

_RANGES = {
    "samples": "[2, inf)",
    **dict.fromkeys(("prompts", "max_tokens", "tokens", "coordinates"), "[1, inf)"),
    "batches": "[4, inf)",
}


@dataclass(frozen=True, kw_only=True)
class AnalyzeOptions:
    """One measurement.

    Args:
        model: veRL checkpoint, Hugging Face directory or hub name; several with --sharpness.
        data: prompts (.parquet, .json, .jsonl); for a run's checkpoint with the run's options of the chat template.
        out: directory for the results; runs/analyze/MODEL if left out.
        device: cpu, cuda, cuda:1, ...
        prompts: number of prompts, drawn from the file with the seed.
        samples: responses to each, sampled at temperature 1; at least 2, since advantages compare them.
        max_tokens: longest response.
        seed: of prompts, sampling and intervals.
        shaping: NAME or NAME:PARAMETER=VALUE,...; sigmoid is TR-GRPO's.
        parameters: parameters to differentiate by, those with this in their names between dots, such as layers.3 or
            mlp.down_proj; all for all.
        tokens: at most so many get a backward pass of their own, and as many are shown on the page.
        only_tokens: write tokens.html alone, which needs no backward pass.
        sharpness: measure this instead of gradients, for each model.
        radius: lengths of a perturbation over the norm of the parameters.
        efficiency: measure this instead: of each shaping's direction, relative to GRPO's.
        batches: mini-batches of four prompts for --efficiency; prompts of the file are used again if it has fewer. With a
            larger number, a finished measurement goes on.
        coordinates: parameters, drawn at random, for the inner products of --efficiency; norms are of all.
        bf16: compute in bfloat16 with --efficiency, over weights and gradients in float32.
    """

    model: tuple[str, ...]
    data: Path
    out: Path | None = None
    device: str = "cpu"
    prompts: int = 16
    samples: int = 8
    max_tokens: int = 512
    seed: int = 0
    shaping: tuple[str, ...] = ("sigmoid",)
    parameters: str = "all"
    tokens: int = 2000
    only_tokens: bool = False
    sharpness: bool = False
    radius: tuple[float, ...] = (1e-5, 1e-4, 1e-3)
    efficiency: bool = False
    batches: int = 50
    coordinates: int = 1_000_000
    bf16: bool = False

    def __post_init__(self) -> None:
        messages = range_errors(vars(self), _RANGES)
        messages += [
            f"radius={radius} is out of range; give a positive number" for radius in self.radius if not radius > 0
        ]
        empty = [name for name in ("shaping", "radius") if not getattr(self, name)]
        messages += [f"{name} is empty; give at least one, or leave it out" for name in empty]
        if not self.model or (len(self.model) > 1 and not self.sharpness):
            messages.append(f"model has {len(self.model)} values; give one, or several with --sharpness")
        chosen = [name for name in ("only_tokens", "sharpness", "efficiency") if getattr(self, name)]
        if len(chosen) > 1:
            messages.append(f"{' and '.join(chosen)} are different measurements; choose one")
        if self.bf16 and not self.efficiency:
            messages.append("bf16=True has no effect without --efficiency; leave it out")
        for text in self.shaping:
            try:
                parse_shaping(text, probs_only=not self.efficiency)
            except ValueError as error:
                messages += messages_of(error)
        raise_invalid(messages)

    @property
    def directory(self) -> Path:
        """Return `out`, or its default."""
        return self.out or Path("runs") / "analyze" / model_label(self.model[0])

    @property
    def shapings(self) -> dict[str, Shaping]:
        """Return the shapings by the string that names them, after `UNIFORM`."""
        return {text: parse_shaping(text, probs_only=not self.efficiency) for text in (UNIFORM, *self.shaping)}


def parse_shaping(text: str, probs_only: bool = True) -> Shaping:
    """Build the shaping of ``name`` or ``name:parameter=value,...``, such as ``sigmoid:reverse=true,tau=6``.

    Raises:
        ValueError: it cannot be built, or needs more than probabilities although `probs_only` is true.
    """
    from omegaconf import OmegaConf

    from verl_trgrpo.core import make_shaping

    name, _, rest = text.partition(":")
    parameters: Any = OmegaConf.from_dotlist(rest.split(",") if rest else [])
    shaping = make_shaping(name, **parameters)
    if probs_only and not shaping.probs_only:
        raise ValueError(f"shaping={text} needs {', '.join(shaping.inputs)}; the analysis has probabilities only")
    return shaping


def analyze(options: AnalyzeOptions, progress: Progress) -> tuple[str, bool]:
    """Measure gradients or sharpness and write the results into ``options.directory``.

    Returns:
        the result as text, and whether all tokens are within the theoretical bounds.

    Raises:
        ValueError: a device, model, data file or parameter name does not exist, or rewards are equal in every group.
        RuntimeError: a sharded checkpoint cannot be merged.
    """
    from verl_trgrpo.analysis.efficiency import analyze_efficiency, efficiency_text, plot_efficiency
    from verl_trgrpo.analysis.gradients import analyze_gradients, chosen_parameters
    from verl_trgrpo.analysis.rollouts import load_policy, sample_rollouts
    from verl_trgrpo.analysis.sharpness import analyze_sharpness
    from verl_trgrpo.analysis.tokens import write_tokens
    from verl_trgrpo.runs.run_directory import provenance

    places = {name: find_model(name) for name in options.model}
    if options.directory.is_file():
        raise ValueError(f"out={options.directory} is a file; give a directory")
    if not options.data.is_file():
        raise ValueError(f"data={options.data} does not exist; give a data file with prompts")
    options.directory.mkdir(parents=True, exist_ok=True)
    policies = (
        load_policy(merged_model(place, options.directory), options.device, config_of_run(name))
        for name, place in places.items()
    )
    results: dict[str, Any] = {"options": asdict(options)} | provenance(Path(__file__).parent)
    within_bounds = True
    if options.sharpness:
        path = options.directory / "sharpness.json"
        found = {
            name: analyze_sharpness(*policy, options, progress) for name, policy in zip(places, policies, strict=True)
        }
        results["models"] = {name: [asdict(at) for at in radii] for name, radii in found.items()}
        text = f"{sharpness_text(found)}\n\n{path}"
    elif options.efficiency:
        path = options.directory / "efficiency.json"
        results |= analyze_efficiency(*next(policies), options, progress)
        plot_efficiency(results, path.with_suffix(".png"), options.model[0])
        text = f"{efficiency_text(results)}\n\n{path}, {path.with_suffix('.png')}"
    else:
        prompts, model = next(policies)
        if not options.only_tokens:
            chosen_parameters(model, options.parameters)  # reports a wrong name before the work
        rollouts = sample_rollouts(prompts, model, options, progress)
        page = write_tokens(prompts.tokenizer, model, rollouts, options, progress)
        if options.only_tokens:
            return str(page), True
        path = options.directory / "gradients.json"
        figures, at_logits, norms = analyze_gradients(model, rollouts, options, progress)
        results |= figures
        title = f"{options.model[0]}: {figures['tokens']:,} tokens of {len(rollouts)} responses"
        plot_gradients(figures, at_logits, norms, path.with_suffix(".png"), title)
        text = f"{gradient_text(figures)}\n\n{path}, {path.with_suffix('.png')}, {page}"
        within_bounds = figures["envelope"]["holds"]
    write_json(path, results, default=str)
    return text, within_bounds


_HEAD = (
    "p of the quarter's tokens", "tokens", "weight", "share: logits", "parameters", "update norm", "cosine with 4th",
)  # fmt: skip


def gradient_text(figures: Mapping[str, Any]) -> str:
    """Return tables of the figures of :func:`~verl_trgrpo.analysis.gradients.analyze_gradients`."""
    envelope, ratio = figures["envelope"], figures["parameter_norm_over_miss"]
    verdict = "all tokens are within" if envelope["holds"] else "NOT all tokens are within"
    lines = [
        f"{figures['tokens']:,} tokens, {figures['tokens_with_gradient']:,} with an advantage other than 0",
        f"gradient norm of log p at the logits: {envelope['lowest']:.4f} to {envelope['highest']:.4f} times (1 - p); "
        f"{verdict} 1 to sqrt(2)",
        f"by {figures['parameters']:,} parameters: {ratio['5%']:.3g} | {ratio['50%']:.3g} | {ratio['95%']:.3g} times (1 - p) "
        "(5 %, median, 95 % of the tokens)",
    ]
    for name, effect in figures["shapings"].items():
        columns = [effect[name] for name in ("weight", "share_at_logits", "share_at_parameters")]
        cosines = [row[-1] for row in effect["cosine"]]
        rows = [
            [
                range_of_p,
                f"{facts['tokens']:,}",
                *(f"{column[q]:.4f}" for column in columns),
                f"{effect['update_norm'][q]:.3g}",
                "-" if cosines[q] is None else f"{cosines[q]:.3f}",
            ]
            for q, (facts, range_of_p) in enumerate(zip(figures["quarters"], _ranges(figures), strict=True))
        ]
        about = "before weighting" if name == UNIFORM else f"mean weight {effect['mean_weight']:.4f}"
        lines += ["", f"{name}: {about}", text_table(rows, _HEAD, "r" * len(_HEAD))]
    return "\n".join(lines)


def _ranges(figures: Mapping[str, Any]) -> list[str]:
    quarters = figures["quarters"]
    return [f"{q['lowest_p']:.4f} to {q['highest_p']:.4f}" if q["tokens"] else "none" for q in quarters]


def sharpness_text(found: Mapping[str, Sequence[Sharpness]]) -> str:
    """Return a table with a line for each checkpoint and radius."""
    from verl_trgrpo.compare.tables import interval_text

    names = ("gradient_norm", "sam_rise", "sam_curvature")
    rows = [
        [model, f"{sharpness.radius:.3g}", *(interval_text(getattr(sharpness, name)) for name in names)]
        for model, radii in found.items()
        for sharpness in radii
    ]
    head = ["", "radius", *(name.replace("_", " ") for name in names)]
    return text_table(rows, head, "lrrrr") + "\n95 % intervals over batches"


def plot_gradients(
    figures: Mapping[str, Any], at_logits: LogitGradients, norms: torch.Tensor, path: Path, title: str
) -> None:
    """Draw norms against probability with their bounds, and shares by quarter, into a PNG file."""
    import pandas
    from matplotlib.figure import Figure  # not pyplot, which would keep it alive

    figure = Figure(figsize=(15, 5), layout="constrained")
    figure.suptitle(title)
    logits, parameters, shares = figure.subplots(1, 3)
    _plot_norms(logits, at_logits.one_minus_prob, at_logits.norms, {"1 - p": 1.0, "sqrt(2) (1 - p)": math.sqrt(2)})
    logits.set(title="gradient norm of log p at the logits")
    ratio = figures["parameter_norm_over_miss"]
    bounds = {f"{bound:.3g} (1 - p)": bound for bound in (ratio["5%"], ratio["95%"])}
    _plot_norms(parameters, at_logits.one_minus_prob[: len(norms)], norms, bounds)
    parameters.set(title=f"by {figures['parameters']:,} parameters\n(90 % of the tokens are between the lines)")

    effects = figures["shapings"]
    by_shaping = {name: effect["share_at_parameters"] for name, effect in effects.items()}
    pandas.DataFrame(by_shaping, _ranges(figures)).plot.bar(ax=shares, rot=0, width=0.8, ylim=(0, 1), fontsize=8)
    shares.set(title="share of the summed norms |A| w ||g||\n(by parameters)", xlabel="p of the quarter's tokens")
    with replaced_file(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")


def _plot_norms(axis: Any, one_minus_prob: torch.Tensor, norms: torch.Tensor, bounds: Mapping[str, float]) -> None:
    import numpy as np

    shown = (one_minus_prob > 1e-9) & (norms > 0)
    axis.loglog(one_minus_prob[shown], norms[shown], ".", markersize=2, alpha=0.4, rasterized=True)
    line = np.geomspace(max(one_minus_prob[shown].min().item(), 1e-9), 1, 100)
    for (name, bound), style in zip(bounds.items(), ("-", "--"), strict=True):
        axis.loglog(line, bound * line, style, color="C3", linewidth=1, label=name)
    axis.set(xlabel="1 - p of the sampled token (rare tokens on the right)", ylabel="norm")
    axis.legend(fontsize="small")
    axis.grid(alpha=0.3)
