"""Options of measurements on a model's own rollouts; torch is not needed to read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from verl_trgrpo.common.findings import messages_of
from verl_trgrpo.common.options import Options
from verl_trgrpo.evaluation.checkpoint import model_label

if TYPE_CHECKING:  # it imports torch, which --help does not need
    from verl_trgrpo.core import Shaping

UNIFORM = "uniform"


@dataclass(frozen=True, kw_only=True)
class RolloutOptions(Options):
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
    prompts: Annotated[int, "[1, inf)"] = 16
    samples: Annotated[int, "[2, inf)"] = 8
    max_tokens: Annotated[int, "[1, inf)"] = 512
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class AnalyzeOptions(RolloutOptions):
    """Gradients of tokens and the page of tokens, of one model.

    Args:
        model: run directory, whose latest checkpoint is taken, one of its global_step_N, Hugging Face directory or hub name.
        out: directory for the results; runs/analyze/MODEL if left out.
        shaping: NAME or NAME:PARAMETER=VALUE,...; sigmoid is TR-GRPO's.
        parameters: parameters to differentiate by, those with this in their names between dots, such as layers.3 or
            mlp.down_proj; all for all.
        tokens: at most so many get a backward pass of their own, and as many are shown on the page of tokens.
        only_tokens: write tokens.html alone, which needs no backward pass.
    """

    model: str
    out: Path | None = None
    shaping: tuple[str, ...] = ("sigmoid",)
    parameters: str = "all"
    tokens: Annotated[int, "[1, inf)"] = 2000
    only_tokens: bool = False

    def problems(self) -> list[str]:
        """Return what is wrong with the shapings."""
        messages = [] if self.shaping else ["shaping is empty; give at least one, or leave it out"]
        for text in self.shaping:
            try:
                parse_shaping(text)
            except ValueError as error:
                messages += messages_of(error)
        return messages

    @property
    def shapings(self) -> dict[str, Shaping]:
        """Return the shapings by the string that names them, after `UNIFORM`."""
        return {text: parse_shaping(text) for text in (UNIFORM, *self.shaping)}

    @property
    def directory(self) -> Path:
        """Return `out`, or its default."""
        return self.out or Path("runs") / "analyze" / model_label(self.model)


def parse_shaping(text: str) -> Shaping:
    """Build the shaping of ``name`` or ``name:parameter=value,...``, such as ``sigmoid:reverse=true,tau=6``.

    Raises:
        ValueError: it cannot be built, or needs more than probabilities.
    """
    from omegaconf import OmegaConf

    from verl_trgrpo.core import make_shaping

    name, _, rest = text.partition(":")
    parameters: Any = OmegaConf.from_dotlist(rest.split(",") if rest else [])
    shaping = make_shaping(name, **parameters)
    if not shaping.probs_only:
        raise ValueError(f"shaping={text} needs {', '.join(shaping.inputs)}; the analysis has probabilities only")
    return shaping
