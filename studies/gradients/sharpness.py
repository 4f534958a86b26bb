"""Measure the sharpness of a loss around the parameters of models: gradient norm, and the rise after one SAM step.

example, from a checkout:
  python -m studies.gradients.sharpness --model runs/grpo/global_step_50 runs/tr_grpo/global_step_50 --data train.parquet \\
      --out DIR

--out receives sharpness.json; README.md explains each figure. Exit code: 0 fine, 1 failed, 2 wrong input, 130 interrupted."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from studies.rollouts import Rollout, RolloutOptions, chunks, open_policy, rollout_log_probs, sample_rollouts
from verl_trgrpo.common.files import write_json
from verl_trgrpo.common.options import exit_code, parse_options
from verl_trgrpo.common.progress import Progress, interruptible, no_progress
from verl_trgrpo.common.text import text_table
from verl_trgrpo.compare.statistics import Estimate, mean_interval
from verl_trgrpo.compare.tables import interval_text
from verl_trgrpo.runs.environment import provenance

if TYPE_CHECKING:
    from verl_trgrpo.data.prompts import RolloutPrompts

LossFunction = Callable[[Any], torch.Tensor]

# Prompts, with all their responses, whose loss is measured together.
PROMPTS_PER_BATCH = 4


@dataclass(frozen=True, kw_only=True)
class SharpnessOptions(RolloutOptions):
    """One measurement of sharpness.

    Args:
        model: veRL checkpoints, Hugging Face directories or hub names.
        out: directory for the results.
        radius: lengths of a perturbation over the norm of the parameters.
    """

    model: tuple[str, ...]
    out: Path
    radius: tuple[float, ...] = (1e-5, 1e-4, 1e-3)

    def problems(self) -> list[str]:
        """Return all that is wrong."""
        empty = [f"{name} is empty; give at least one" for name in ("model", "radius") if not getattr(self, name)]
        wrong = [f"radius={radius} is out of range; give a positive number" for radius in self.radius if not radius > 0]
        return super().problems() + empty + wrong


@dataclass(frozen=True)
class Sharpness:
    """The result of :func:`measure_sharpness`, means over batches.

    Args:
        gradient_norm: ||g||; radius times it is the rise to first order, SAM's surrogate of sharpness.
        sam_rise: L(x + radius g / ||g||) - L(x), the ascent step of SAM (arXiv 2010.01412).
        sam_curvature: sam_rise - radius ||g||, the part that is not slope.
        radius: length of the perturbations, relative radius times the norm of the parameters.
    """

    gradient_norm: Estimate
    sam_rise: Estimate
    sam_curvature: Estimate
    radius: float


def analyze_sharpness(
    prompts: RolloutPrompts, model: Any, options: SharpnessOptions, progress: Progress
) -> list[Sharpness]:
    """Measure sharpness of GRPO's surrogate, -1/N sum A pi / pi_0, around a checkpoint pi_0 on its own rollouts.

    The loss is the same for every checkpoint, whatever it was trained with; a batch is `PROMPTS_PER_BATCH` groups. Returns one
    result for each radius. Raises a ValueError if every group got equal rewards, so that the loss is 0 everywhere.
    """
    rollouts = sample_rollouts(prompts, model, options, progress)
    with torch.no_grad():
        pieces = chunks(rollouts, PROMPTS_PER_BATCH * options.samples)
        batches = [(batch, rollout_log_probs(model, batch)) for batch in pieces]

    def surrogate(batch: tuple[Sequence[Rollout], torch.Tensor]) -> torch.Tensor:
        rows, old = batch
        advantages = torch.cat([torch.full(row.response.shape, row.advantage).to(old) for row in rows])
        return -(advantages * torch.exp(rollout_log_probs(model, rows) - old)).mean()

    return measure_sharpness(surrogate, batches, list(model.parameters()), options.radius, progress)


def measure_sharpness(
    loss: LossFunction,
    batches: Sequence[Any],
    parameters: Sequence[torch.Tensor],
    relative_radii: Sequence[float],
    progress: Progress = no_progress,
) -> list[Sharpness]:
    """Measure how a loss rises around the parameters, which are restored to the bit.

    The loss of a batch must be deterministic and depend on no other parameters. The lengths of the perturbations are
    `relative_radii`, above 0, times the norm of the parameters. Returns one result for each.
    """
    start = [parameter.detach().clone() for parameter in parameters]
    radii = [radius * _norm(start) for radius in relative_radii]

    norms: list[float] = []
    rises: list[list[float]] = [[] for _ in radii]
    for batch in progress(batches, len(batches), "batches"):
        value = loss(batch)
        gradient = torch.autograd.grad(value, parameters)
        norms.append(norm := _norm(gradient))
        with torch.no_grad():
            for radius, found in zip(radii, rises, strict=True):
                for parameter, step in zip(parameters, gradient, strict=True):
                    parameter.add_(step, alpha=radius / norm if norm else 0.0)
                found.append(loss(batch).item() - value.item())
                for parameter, before in zip(parameters, start, strict=True):
                    parameter.copy_(before)
    return [
        Sharpness(
            gradient_norm=mean_interval(norms),
            sam_rise=mean_interval(found),
            sam_curvature=mean_interval([rise - radius * norm for rise, norm in zip(found, norms, strict=True)]),
            radius=radius,
        )
        for radius, found in zip(radii, rises, strict=True)
    ]


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors))


def sharpness_text(found: Mapping[str, Sequence[Sharpness]]) -> str:
    """Return a table with a line for each model and radius."""
    names = ("gradient_norm", "sam_rise", "sam_curvature")
    rows = [
        [model, f"{sharpness.radius:.3g}", *(interval_text(getattr(sharpness, name)) for name in names)]
        for model, radii in found.items()
        for sharpness in radii
    ]
    head = ["", "radius", *(name.replace("_", " ") for name in names)]
    return text_table(rows, head, "lrrrr") + "\n95 % intervals over batches"


def main(argv: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    options = parse_options(SharpnessOptions, "python -m studies.gradients.sharpness", argv=argv)
    path = options.out / "sharpness.json"
    with interruptible() as progress:
        found = {
            model: analyze_sharpness(*open_policy(options, model, options.out), options, progress)
            for model in options.model
        }
    models = {model: [asdict(at) for at in radii] for model, radii in found.items()}
    about = {"options": asdict(options)} | provenance(Path(__file__).parent)
    write_json(path, about | {"models": models}, default=str)
    sys.stdout.write(f"{sharpness_text(found)}\n\n{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(partial(main, sys.argv[1:])))
