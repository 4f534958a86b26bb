"""Preview a run before it starts: a few prompts, the model's responses, and their rewards."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.checks.data_files import default_reward
from verl_trgrpo.checks.view import OWN_REWARDS, data_files
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import count_of
from verl_trgrpo.core import group_metrics
from verl_trgrpo.data.prompts import default_agent_of, prompt_settings
from verl_trgrpo.data.rows import Row
from verl_trgrpo.evaluation.checkpoint import find_model, merged_model
from verl_trgrpo.evaluation.evaluate import load_evaluable_rows
from verl_trgrpo.evaluation.generation import Generator, Job, make_responses
from verl_trgrpo.evaluation.options import EvalOptions
from verl_trgrpo.evaluation.rare_tokens import ALTERNATIVES, Written, diagnosis_text, probe_rare_tokens
from verl_trgrpo.evaluation.response_store import Response, open_store
from verl_trgrpo.runs.keys import REWARD, ROLLOUT
from verl_trgrpo.runs.metrics import EQUAL_GROUPS, NO_ANSWER
from verl_trgrpo.tasks.registry import import_external_modules, known_agent_loops
from verl_trgrpo.tasks.task import AgentLoop

# Characters of a response that are shown, counted from its end.
_SHOWN = 800


@dataclass(frozen=True)
class Scored:
    """A response to a prompt, and the result of the run's reward function."""

    row: Row
    response: Response
    score: float
    info: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class _RunOptions(EvalOptions):
    """An evaluation whose prompts are those of the run with this configuration."""

    config: DictConfig

    def prompt_settings(self, model: str) -> DictConfig:
        own_tokenizer = OmegaConf.select(self.config, "actor_rollout_ref.model.tokenizer_path")
        return prompt_settings(self.config, own_tokenizer or model)

    def loop_settings(self, loop: AgentLoop) -> dict[str, Any]:
        settings: Any = OmegaConf.select(self.config, f"{ROLLOUT}.custom.{loop.section}") if loop.section else None
        return {name: value for name, value in (settings or {}).items() if value is not None}


def preview(
    config: DictConfig, prompts: int, samples: int, progress: Progress = no_progress, rare_tokens: int = 0
) -> tuple[list[Scored], str]:
    """Sample responses to some training prompts as the run would, and score them with its reward function.

    The prompts are drawn from the first training file with the run's seed; at temperature 0 each gets one response. With
    `rare_tokens` so many rare tokens of as many new answers are probed; the text of the diagnosis comes second, "" without.
    Raises as :func:`verl_trgrpo.evaluation.evaluate.evaluate`, and a ValueError for rare tokens of rows with an agent loop.
    """
    from verl_trgrpo.tasks.reward_manager import reward_function  # imports veRL

    import_external_modules()
    reward, rollout = reward_function(config), config.actor_rollout_ref.rollout
    with tempfile.TemporaryDirectory() as directory:
        options = _RunOptions(
            config=config,
            model=str(config.actor_rollout_ref.model.path),
            data=(Path(data_files(config, "data.train_files")[0]),),
            k=samples if rollout.temperature else 1,
            temperature=float(rollout.temperature),
            top_p=float(rollout.top_p),
            max_tokens=config.data.max_response_length,
            limit=prompts,
            seed=config.data.seed or 0,
            out=Path(directory),
            tensor_parallel=rollout.tensor_model_parallel_size,
        )
        own = OmegaConf.select(config, f"{REWARD}.path") == OWN_REWARDS
        agent, prompt_key = default_agent_of(config), str(config.data.prompt_key)
        [rows] = load_evaluable_rows(
            options.data, options.limit, options.seed, own, default_reward(config), agent, prompt_key
        )
        jobs = [Job(0, row, sample, "preview") for row in rows for sample in range(options.sampling.k)]
        looped = rare_tokens and any(row.agent_name in known_agent_loops() for row in rows)
        if looped or (rare_tokens and not rollout.temperature):
            raise ValueError(
                "--rare-tokens: continues sampled answers of one turn; leave the option out for agent loops or temperature 0"
            )
        diagnosis: list[str] = []

        async def diagnose(generator: Generator) -> None:
            answers: dict[int, list[Written]] = {}
            found = await asyncio.gather(*(generator.write(job, (), 1, ALTERNATIVES) for job in jobs))
            for job, answer in zip(jobs, found, strict=True):
                answers.setdefault(job.row.position, []).append(answer)
            first = {job.row.position: job for job in jobs if job.sample == 0}

            def reward_of(prompt: int, answer: Written) -> float:
                response = Response(prompt, 0, answer.text, len(answer.tokens), answer.cut, generator.extra)
                return _scored(first[prompt].row, response, reward).score

            async def proceed(prompt: int, begun: Sequence[int], sample: int) -> Written:
                return await generator.write(first[prompt], begun, 2 + sample)

            probed = await probe_rare_tokens(answers, proceed, reward_of, rare_tokens, options.seed)
            diagnosis.append(diagnosis_text(*probed))

        with open_store(options.directory, {}, options.data) as store:
            model = merged_model(find_model(options.model), options.directory)
            then = (diagnose,) if rare_tokens else ()
            asyncio.run(make_responses(options, model, jobs, store, progress, *then))
            responses = store.read(0)
    by_position = {row.position: row for row in rows}
    return [_scored(by_position[response.row], response, reward) for response in responses], "".join(diagnosis)


def _scored(row: Row, response: Response, reward: Callable[..., Any]) -> Scored:
    given = {"data_source": row.data_source, "solution_str": response.text, "ground_truth": row.ground_truth}
    found = reward(**given, extra_info=response.reward_input(row))
    info = dict(found) if isinstance(found, dict) else {"score": found}
    return Scored(row, response, float(info["score"]), info)


def preview_text(found: Sequence[Scored]) -> str:
    """Return the ends of the responses with their rewards, and a summary for the run; those to one prompt are adjacent."""
    lines, position = [], None
    for item in found:
        if item.row.position != position:
            position = item.row.position
            prompt = item.row.messages[-1]["content"].strip()
            head = f"== prompt {position} ({item.row.data_source}), right answer {item.row.ground_truth}"
            lines += [head, prompt, ""]
        text = item.response.text.strip()
        if len(text) > _SHOWN:
            text = f"[... {len(text) - _SHOWN} characters] {text[-_SHOWN:]}"
        notes = [f"reward {item.score:g}"]
        notes += ["the reward found no answer"] if item.info.get("format_ok", 1) == 0 else []
        notes += [count_of(item.response.tokens, "token"), *(["cut"] if item.response.cut else [])]
        lines += [f"-- {', '.join(notes)}", text, ""]
    return "\n".join([*lines, *_summary(found)])


def _summary(found: Sequence[Scored]) -> list[str]:
    groups, scores = [item.row.position for item in found], [item.score for item in found]
    shares = group_metrics(groups, scores, [item.info for item in found])
    equal = shares[EQUAL_GROUPS]
    lines = [
        f"{count_of(len(found), 'response')} to {count_of(len({*groups}), 'prompt')}: mean reward {fmean(scores):.3f}"
    ]
    if NO_ANSWER in shares:
        lines.append(f"without an answer that the reward finds: {shares[NO_ANSWER]:.0%}")
    lines.append(f"cut at data.max_response_length: {fmean(item.response.cut for item in found):.0%}")
    if len(found) == len({*groups}):
        return [*lines, "one response to each prompt: nothing to compare within groups"]
    lines.append(f"prompts whose responses all have the same reward, from which GRPO learns nothing: {equal:.0%}")
    if equal > 0.9:
        lines.append(
            "This run would hardly learn: the prompt may not ask for the form that the reward expects, the length limit may "
            "cut the answers off, or the prompts are far too hard or too easy for this model"
        )
    return lines
