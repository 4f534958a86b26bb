"""What to evaluate and how: presets, and the checked options of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_trgrpo.common.problems import raise_problems


@dataclass(frozen=True)
class Preset:
    """Sampling of a protocol: samples per prompt, temperature (0: greedy), top-p, most tokens of a response, and why."""

    k: int
    temperature: float
    top_p: float
    max_tokens: int
    about: str


PRESETS = {
    "greedy": Preset(1, 0.0, 1.0, 4096, "one greedy response per prompt"),
    "aime": Preset(16, 0.6, 0.95, 32768, "avg@16 for competition mathematics, as DeepScaleR and R1's model cards"),
    "kk": Preset(1, 0.0, 1.0, 4096, "Knights and Knaves: one greedy response, per size by data source"),
    "search_qa": Preset(1, 0.0, 1.0, 4500, "exact match with searches, one greedy trajectory"),
}


@dataclass(frozen=True)
class EvalOptions:
    """One evaluation.

    model: veRL checkpoint (``global_step_N`` or its ``actor``), Hugging Face directory, or name on the hub.
    data: veRL parquet files.
    out: directory for responses and report.
    k: samples per prompt, from 1.
    temperature: 0 for greedy decoding, which allows only k=1.
    top_p: above 0, up to 1.
    max_tokens: of a response; with searches, observations count, too.
    seed: of sampling, of `limit` and of the intervals.
    limit: at most this many rows of each file, drawn with the seed; None for all.
    tensor_parallel: accelerators that share one copy of the model.
    max_model_len: tokens of prompt and response together; None for what the data needs.
    search: settings of searching rows, as in ``actor_rollout_ref.rollout.custom.search``.

    Raises ValueError that lists everything that is wrong.
    """

    model: str
    data: tuple[Path, ...]
    out: Path
    k: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 4096
    seed: int = 0
    limit: int | None = None
    tensor_parallel: int = 1
    max_model_len: int | None = None
    search: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = [f"{path} is not a file; check --data" for path in self.data if not path.is_file()]
        if not self.data:
            problems.append("no data file is given; name parquet files with --data")
        if len({path.resolve() for path in self.data}) < len(self.data):
            problems.append("a data file is given twice; name each once")
        if not self.model:
            problems.append("the model is empty; name a directory or a model on the hub")
        for name in ("k", "max_tokens", "tensor_parallel", "limit", "max_model_len"):
            value = getattr(self, name)
            if value is not None and value < 1:
                problems.append(f"{name} is {value}; it must be at least 1")
        if not 0.0 <= self.temperature <= 10.0:
            problems.append(f"temperature is {self.temperature}; it must be 0 (greedy) to 10")
        if not 0.0 < self.top_p <= 1.0:
            problems.append(f"top_p is {self.top_p}; it must be above 0 and at most 1")
        if self.temperature == 0.0 and self.k > 1:
            problems.append(f"k is {self.k} at temperature 0, where all samples are equal; use k=1 or a temperature")
        if not 0 <= self.seed < 2**32:
            problems.append(f"seed is {self.seed}; it must be 0 to {2**32 - 1}")
        if self.max_model_len is not None and self.max_model_len <= self.max_tokens:
            problems.append(
                f"max_model_len is {self.max_model_len}, which leaves no prompt beside max_tokens {self.max_tokens}; "
                "raise it or lower max_tokens"
            )
        if self.search:
            from verl_trgrpo.tasks.search_qa.agent.options import read_options

            try:
                read_options(self.search)
            except ValueError as error:
                problems.append(str(error))
        raise_problems(problems)


def default_out(model: str, preset: str) -> Path:
    """Return ``runs/eval/<model>-<preset>``, for a veRL checkpoint with the name of its run."""
    parts = [part for part in Path(model).parts if part not in ("/", ".", "..", "actor")]
    names = parts[-2:] if parts and parts[-1].startswith("global_step_") else parts[-1:]
    name = "-".join(names) if Path(model).exists() else model.replace("/", "-")
    return Path("runs") / "eval" / f"{name or 'model'}-{preset}"
