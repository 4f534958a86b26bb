"""Options of measurements on a model's own rollouts; torch is not needed to read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_trgrpo.common.findings import messages_of, raise_invalid, range_errors
from verl_trgrpo.evaluation.checkpoint import model_label

if TYPE_CHECKING:  # it imports torch, which --help does not need
    from verl_trgrpo.core import Shaping

UNIFORM = "uniform"

_RANGES = {"samples": "[2, inf)", **dict.fromkeys(("prompts", "max_tokens", "tokens"), "[1, inf)")}


@dataclass(frozen=True, kw_only=True)
class RolloutOptions:
    """What is sampled.

    Args:
        data: prompts (.parquet, .json, .jsonl); for a run's checkpoint with the run's options of the chat template.
        device: cpu, cuda, cuda:1, ...
        prompts: number of prompts, drawn from the file with the seed.
        samples: responses to each, sampled at temperature 1; at least 2, since advantages compare them.
        max_tokens: longest response.
        seed: of prompts, sampling and intervals.
    """

    data: Path
    device: str = "cpu"
    prompts: int = 16
    samples: int = 8
    max_tokens: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        raise_invalid(self.problems())

    def problems(self) -> list[str]:
        """Return all that is wrong."""
        return range_errors(vars(self), _RANGES)


@dataclass(frozen=True, kw_only=True)
class GradientOptions(RolloutOptions):
    """Whose gradients are measured, and with which weights.

    Args:
        shaping: NAME or NAME:PARAMETER=VALUE,...; sigmoid is TR-GRPO's.
        parameters: parameters to differentiate by, those with this in their names between dots, such as layers.3 or
            mlp.down_proj; all for all.
        tokens: at most so many get a backward pass of their own, and as many are shown on the page of tokens.
    """

    shaping: tuple[str, ...] = ("sigmoid",)
    parameters: str = "all"
    tokens: int = 2000

    def problems(self) -> list[str]:
        """Return all that is wrong."""
        return super().problems() + shaping_problems(self.shaping)

    @property
    def shapings(self) -> dict[str, Shaping]:
        """Return the shapings by the string that names them, after `UNIFORM`."""
        return {text: parse_shaping(text) for text in (UNIFORM, *self.shaping)}


@dataclass(frozen=True, kw_only=True)
class AnalyzeOptions(GradientOptions):
    """Gradients of tokens and the page of tokens, of one model.

    Args:
        model: run directory, whose latest checkpoint is taken, one of its global_step_N, Hugging Face directory or hub name.
        out: directory for the results; runs/analyze/MODEL if left out.
        only_tokens: write tokens.html alone, which needs no backward pass.
    """

    model: str
    out: Path | None = None
    only_tokens: bool = False

    @property
    def directory(self) -> Path:
        """Return `out`, or its default."""
        return self.out or Path("runs") / "analyze" / model_label(self.model)


def shaping_problems(shapings: tuple[str, ...], probs_only: bool = True) -> list[str]:
    """Return what is wrong with a list of shapings."""
    messages = [] if shapings else ["shaping is empty; give at least one, or leave it out"]
    for text in shapings:
        try:
            parse_shaping(text, probs_only)
        except ValueError as error:
            messages += messages_of(error)
    return messages


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
