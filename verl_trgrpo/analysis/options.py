"""What to measure, on which rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.evaluation.checkpoint import model_label

if TYPE_CHECKING:
    from verl_trgrpo.core import Shaping

UNIFORM = "uniform"


@dataclass(frozen=True, kw_only=True)
class AnalyzeOptions:
    """One measurement.

    Args:
        model: veRL checkpoint, Hugging Face directory or hub name; several with --sharpness.
        data: prompts (veRL parquet).
        out: directory for the results; runs/analyze/MODEL if left out.
        device: cpu, cuda, cuda:1, ...
        prompts: how many, drawn from the file with the seed.
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

    def __post_init__(self) -> None:
        at_least_one = dict.fromkeys(("prompts", "max_tokens", "tokens"), "[1, inf)")
        problems = range_errors(vars(self), {"samples": "[2, inf)", **at_least_one})
        problems += [f"radius is {radius}; it must be positive" for radius in self.radius if not radius > 0]
        problems += [
            f"--{name} is empty; name one at least, or leave it out"
            for name in ("shaping", "radius")
            if not getattr(self, name)
        ]
        if not self.model or (len(self.model) > 1 and not self.sharpness):
            problems.append(
                f"gradients are measured for one model at a time, not {len(self.model)}; or add --sharpness"
            )
        if self.only_tokens and self.sharpness:
            problems.append("--only-tokens and --sharpness are two different measurements; choose one")
        for text in self.shaping:
            try:
                parse_shaping(text)
            except ValueError as error:
                problems.append(str(error))
        raise_invalid(problems)

    @property
    def directory(self) -> Path:
        """`out`, or its default."""
        return self.out or Path("runs") / "analyze" / model_label(self.model[0])

    @property
    def shapings(self) -> dict[str, Shaping]:
        """The shapings by the text that names them; `UNIFORM` stands before them."""
        return {text: parse_shaping(text) for text in (UNIFORM, *self.shaping)}


def parse_shaping(text: str) -> Shaping:
    """Return the shaping of ``name`` or ``name:parameter=value,...``, such as ``sigmoid:reverse=true,tau=6``.

    Raises:
        ValueError: where it cannot be built, or needs more than probabilities.
    """
    from omegaconf import OmegaConf

    from verl_trgrpo.core import make_shaping  # imports torch

    name, _, rest = text.partition(":")
    parameters: Any = OmegaConf.from_dotlist(rest.split(",") if rest else [])
    shaping = make_shaping(name, **parameters)
    if not shaping.probs_only:
        raise ValueError(f"shaping {text} asks for {', '.join(shaping.inputs)}; the analysis has probabilities only")
    return shaping
