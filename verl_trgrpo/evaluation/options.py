"""What to evaluate and how: presets, and the checked options of an evaluation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from verl_trgrpo.common.problems import raise_problems


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

    Raises ValueError that lists everything that is wrong.

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
        max_model_len: tokens of prompt and response together; what the data needs if left out.
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
    max_model_len: int | None = None
    search: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sampling = self.sampling
        problems = [f"{path} is not a file; check --data" for path in self.data if not path.is_file()]
        if not self.data:
            problems.append("no data file is given; name parquet files with --data")
        if len({path.resolve() for path in self.data}) < len(self.data):
            problems.append("a data file is given twice; name each once")
        if not self.model:
            problems.append("the model is empty; name a directory or a model on the hub")
        for name, value in {
            "k": sampling.k,
            "max_tokens": sampling.max_tokens,
            "tensor_parallel": self.tensor_parallel,
            "limit": self.limit,
            "max_model_len": self.max_model_len,
        }.items():
            if value is not None and value < 1:
                problems.append(f"{name} is {value}; it must be at least 1")
        if not 0.0 <= sampling.temperature <= 10.0:
            problems.append(f"temperature is {sampling.temperature}; it must be 0 (greedy) to 10")
        if not 0.0 < sampling.top_p <= 1.0:
            problems.append(f"top_p is {sampling.top_p}; it must be above 0 and at most 1")
        if sampling.temperature == 0.0 and sampling.k > 1:
            problems.append(
                f"k is {sampling.k} at temperature 0, where all samples are equal; use k=1 or a temperature"
            )
        if not 0 <= self.seed < 2**32:
            problems.append(f"seed is {self.seed}; it must be 0 to {2**32 - 1}")
        if self.max_model_len is not None and self.max_model_len <= sampling.max_tokens:
            problems.append(
                f"max_model_len is {self.max_model_len}, which leaves no prompt beside max_tokens {sampling.max_tokens}; "
                "raise it or lower max_tokens"
            )
        try:
            self._check_search()
        except ValueError as error:
            problems.append(str(error))
        raise_problems(problems)

    @property
    def sampling(self) -> Sampling:
        """The preset's values, or those that were given instead."""
        chosen = asdict(PRESETS[self.preset])
        return Sampling(**{n: value if getattr(self, n) is None else getattr(self, n) for n, value in chosen.items()})

    @property
    def directory(self) -> Path:
        """`out`, or ``runs/eval/MODEL-PRESET``; for a veRL checkpoint with the name of its run."""
        if self.out is not None:
            return self.out
        parts = [part for part in Path(self.model).parts if part not in ("/", ".", "..", "actor")]
        names = parts[-2:] if parts and parts[-1].startswith("global_step_") else parts[-1:]
        name = "-".join(names) if Path(self.model).exists() else self.model.replace("/", "-")
        return Path("runs") / "eval" / f"{name or 'model'}-{self.preset}"

    @property
    def search_settings(self) -> dict[str, Any]:
        """`search` as a mapping; numbers are numbers."""
        from omegaconf import OmegaConf

        return {str(name): value for name, value in OmegaConf.from_dotlist([*self.search]).items()}

    def _check_search(self) -> None:
        if not self.search:
            return
        if malformed := [pair for pair in self.search if not pair.partition("=")[0] or "=" not in pair]:
            raise ValueError(f"--search {' '.join(malformed)} is not KEY=VALUE, such as topk=3")
        from verl_trgrpo.tasks.search_qa.options import read_options

        read_options(self.search_settings)
