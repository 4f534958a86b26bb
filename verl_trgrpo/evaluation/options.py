"""Options of an evaluation, with their presets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.options import Options
from verl_trgrpo.common.text import did_you_mean
from verl_trgrpo.data.prompts import prompt_settings
from verl_trgrpo.data.rows import file_problems
from verl_trgrpo.data.verl_files import data_paths
from verl_trgrpo.evaluation.checkpoint import config_of_run, model_label
from verl_trgrpo.tasks.registry import default_reward_problem, import_external_modules, known_presets
from verl_trgrpo.tasks.task import AgentLoop, Sampling


def presets() -> dict[str, Sampling]:
    """Return greedy sampling and the presets of the tasks; docs/evaluation.md has the sources of the numbers."""
    return {"greedy": Sampling(1, 0.0, 1.0, 4096), **known_presets()}


@dataclass(frozen=True, kw_only=True)
class EvalOptions(Options):
    """One evaluation.

    Args:
        model: run directory, whose latest checkpoint is taken, one of its global_step_N, Hugging Face directory, or name on
            the hub.
        data: test files (.parquet, .json, .jsonl), or patterns in quotes, as in data.val_files.
        preset: sampling of a protocol, greedy or one that a task brings (docs/evaluation.md); the next four override it.
        k: samples per prompt.
        temperature: 0 is greedy, which allows one sample only.
        top_p: nucleus sampling, above 0 and at most 1.
        max_tokens: tokens of a response, observations included.
        seed: for sampling, the limit and the intervals.
        limit: at most this many rows of each file, drawn with the seed; all if left out.
        out: directory for responses and report; runs/eval/MODEL-PRESET if left out.
        tensor_parallel: accelerators that share one copy of the model.
        agent: KEY=VALUE settings of the agent loop of the rows, as in actor_rollout_ref.rollout.custom.
        template: NAME=VALUE options of the chat template, as in data.apply_chat_template_kwargs; if left out, those of the run
            that made the checkpoint.
        reward: data source whose reward scores rows of data sources without a reward.
    """

    model: str
    data: tuple[Path, ...]
    preset: str = "greedy"
    k: Annotated[int | None, "[1, inf)"] = None
    temperature: Annotated[float | None, "[0, 10]"] = None
    top_p: Annotated[float | None, "(0, 1]"] = None
    max_tokens: Annotated[int | None, "[1, inf)"] = None
    seed: Annotated[int, f"[0, {2**32})"] = 0
    limit: Annotated[int | None, "[1, inf)"] = None
    out: Path | None = None
    tensor_parallel: Annotated[int, "[1, inf)"] = 1
    agent: tuple[str, ...] = ()
    template: tuple[str, ...] = ()
    reward: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", data_paths(self.data))
        super().__post_init__()

    def problems(self) -> list[str]:
        """Return a message for each problem of model, data and sampling."""
        import_external_modules()  # which may bring rewards and presets
        problem = default_reward_problem(self.reward)
        messages = [f"reward={self.reward}: {problem}"] if problem else []
        if self.preset not in presets():
            return [*messages, f"preset={self.preset}: unknown; {did_you_mean(self.preset, presets())}"]
        sampling = self.sampling
        messages += file_problems(self.data) or ([] if self.data else ["data is empty; give at least one test file"])
        if not self.model:
            messages.append("model is empty; give a directory or a model on the hub")
        if sampling.temperature == 0.0 and sampling.k > 1:
            messages.append(f"k={sampling.k} at temperature 0, where all samples are equal; use k=1 or a temperature")
        return messages

    @property
    def sampling(self) -> Sampling:
        """Return the preset's values, or those that were given instead."""
        chosen = asdict(presets()[self.preset])
        return Sampling(**{n: value if getattr(self, n) is None else getattr(self, n) for n, value in chosen.items()})

    @property
    def directory(self) -> Path:
        """Return `out`, or ``runs/eval/MODEL-PRESET``; for a veRL checkpoint with the name of its run."""
        return self.out or Path("runs") / "eval" / f"{model_label(self.model)}-{self.preset}"

    def loop_settings(self, loop: AgentLoop) -> dict[str, Any]:
        """Return the settings of an agent loop, here `agent` as a mapping, in which numbers are numbers."""
        return {str(name): value for name, value in OmegaConf.from_dotlist([*self.agent]).items()}

    def prompt_settings(self, model: str) -> DictConfig:
        """Return the settings that decide the prompts, with the tokenizer of `model`: those of the checkpoint's run, if any."""
        found = prompt_settings(config_of_run(self.model) or OmegaConf.create(), model)
        if self.template:
            options = OmegaConf.from_dotlist([*self.template])
            OmegaConf.update(found, "data.apply_chat_template_kwargs", options, merge=False, force_add=True)
        return found
