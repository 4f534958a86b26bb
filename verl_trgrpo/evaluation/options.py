"""What to evaluate and how: presets, and the checked options of an evaluation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.evaluation.checkpoint import model_label


@dataclass(frozen=True)
class Sampling:
    """Samples per prompt, temperature (0: greedy), top-p, and most tokens of a response."""

    k: int
    temperature: float
    top_p: float
    max_tokens: int


# Where the numbers come from: docs/evaluation.md.
PRESETS = {
    "greedy": Sampling(1, 0.0, 1.0, 4096),
    "aime": Sampling(16, 0.6, 0.95, 32768),
    "kk": Sampling(1, 0.0, 1.0, 4096),
    "search_qa": Sampling(1, 0.0, 1.0, 4500),
}


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """One evaluation.

    Args:
        model: veRL checkpoint (global_step_N or its actor directory), Hugging Face directory, or name on the hub.
        data: test files (veRL parquet).
        preset: sampling of a protocol; the next four override it.
        k: samples per prompt.
        temperature: 0 is greedy, which allows one sample only.
        top_p: nucleus sampling, above 0 and at most 1.
        max_tokens: of a response; with searches, observations count, too.
        seed: of sampling, of the limit and of the intervals.
        limit: at most this many rows of each file, drawn with the seed; all if left out.
        out: directory for responses and report; runs/eval/MODEL-PRESET if left out.
        tensor_parallel: accelerators that share one copy of the model.
        search: KEY=VALUE settings of rows that search, as in actor_rollout_ref.rollout.custom.search.
    """

    model: str
    data: tuple[Path, ...]
    preset: Literal["greedy", "aime", "kk", "search_qa"] = "greedy"
    k: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int = 0
    limit: int | None = None
    out: Path | None = None
    tensor_parallel: int = 1
    search: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sampling = self.sampling
        problems = [f"{path} is not a file; check --data" for path in self.data if not path.is_file()]
        if not self.data or len({path.resolve() for path in self.data}) < len(self.data):
            problems.append("--data names no file, or one twice; name each test file once")
        if not self.model:
            problems.append("the model is empty; name a directory or a model on the hub")
        given = {name: value for name, value in {**vars(self), **asdict(sampling)}.items() if value is not None}
        counts = dict.fromkeys(("k", "max_tokens", "limit", "tensor_parallel"), "[1, inf)")
        others = {"temperature": "[0, 10]", "top_p": "(0, 1]", "seed": f"[0, {2**32})"}
        problems += range_errors(given, counts | others)
        if sampling.temperature == 0.0 and sampling.k > 1:
            problems.append(
                f"k is {sampling.k} at temperature 0, where all samples are equal; use k=1 or a temperature"
            )
        try:
            if self.search:
                from verl_trgrpo.tasks.search_qa.search_options import read_options

                read_options(self.search_settings)
        except ValueError as error:
            problems.append(str(error))
        raise_invalid(problems)

    @property
    def sampling(self) -> Sampling:
        """The preset's values, or those that were given instead."""
        chosen = asdict(PRESETS[self.preset])
        return Sampling(**{n: value if getattr(self, n) is None else getattr(self, n) for n, value in chosen.items()})

    @property
    def directory(self) -> Path:
        """`out`, or ``runs/eval/MODEL-PRESET``; for a veRL checkpoint with the name of its run."""
        return self.out or Path("runs") / "eval" / f"{model_label(self.model)}-{self.preset}"

    @property
    def search_settings(self) -> dict[str, Any]:
        """`search` as a mapping; numbers are numbers."""
        from omegaconf import OmegaConf

        return {str(name): value for name, value in OmegaConf.from_dotlist([*self.search]).items()}
