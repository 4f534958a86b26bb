"""Evaluate a checkpoint: the options with their presets, and the way from them to a report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from verl_trgrpo.common.files import file_sha256, write_json, write_text
from verl_trgrpo.common.findings import messages_of, raise_invalid, range_errors
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data.prompts import SINGLE_TURN, default_agent_of
from verl_trgrpo.data.rows import Row, load_rows
from verl_trgrpo.data.sources import draw
from verl_trgrpo.evaluation.checkpoint import config_of_run, find_model, fingerprint, merged_model, model_label
from verl_trgrpo.tasks.registry import DefaultReward, find_reward, has_reward, import_external_modules
from verl_trgrpo.tasks.search_qa.search_options import SEARCH_AGENT

if TYPE_CHECKING:
    from omegaconf import DictConfig

REPORT, TABLE = "report.json", "report.txt"


@dataclass(frozen=True)
class Sampling:
    """Samples per prompt, temperature (0: greedy), top-p, and maximum number of tokens of a response."""

    k: int
    temperature: float
    top_p: float
    max_tokens: int


# docs/evaluation.md has the sources of the numbers.
PRESETS = {
    "greedy": Sampling(1, 0.0, 1.0, 4096),
    "aime": Sampling(16, 0.6, 0.95, 32768),
    "kk": Sampling(1, 0.0, 1.0, 4096),
    "search_qa": Sampling(1, 0.0, 1.0, 4500),
}

_COUNTS = ("k", "max_tokens", "limit", "tensor_parallel")
_RANGES = {
    **dict.fromkeys(_COUNTS, "[1, inf)"),
    "temperature": "[0, 10]",
    "top_p": "(0, 1]",
    "seed": f"[0, {2**32})",
}


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """One evaluation.

    Args:
        model: veRL checkpoint (global_step_N or its actor directory), Hugging Face directory, or name on the hub.
        data: test files (.parquet, .json, .jsonl).
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
        template: NAME=VALUE options of the chat template, as in data.apply_chat_template_kwargs; if left out, those of the run
            that made the checkpoint.
        reward: data source whose reward scores the rows whose own data source has none.
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
    template: tuple[str, ...] = ()
    reward: DefaultReward | None = None

    def __post_init__(self) -> None:
        sampling = self.sampling
        messages = [f"data={path} is not a file; check the path" for path in self.data if not path.is_file()]
        if not self.data or len({path.resolve() for path in self.data}) < len(self.data):
            messages.append("data is empty or has a file twice; give each test file once")
        if not self.model:
            messages.append("model is empty; give a directory or a model on the hub")
        given = {name: value for name, value in {**vars(self), **asdict(sampling)}.items() if value is not None}
        messages += range_errors(given, _RANGES)
        if sampling.temperature == 0.0 and sampling.k > 1:
            messages.append(f"k={sampling.k} at temperature 0, where all samples are equal; use k=1 or a temperature")
        try:
            if self.search:
                from verl_trgrpo.tasks.search_qa.search_options import read_options

                read_options(self.search_settings)
        except ValueError as error:
            messages += messages_of(error)
        raise_invalid(messages)

    @property
    def sampling(self) -> Sampling:
        """Return the preset's values, or those that were given instead."""
        chosen = asdict(PRESETS[self.preset])
        return Sampling(**{n: value if getattr(self, n) is None else getattr(self, n) for n, value in chosen.items()})

    @property
    def directory(self) -> Path:
        """Return `out`, or ``runs/eval/MODEL-PRESET``; for a veRL checkpoint with the name of its run."""
        return self.out or Path("runs") / "eval" / f"{model_label(self.model)}-{self.preset}"

    @property
    def search_settings(self) -> dict[str, Any]:
        """Return `search` as a mapping, in which numbers are numbers."""
        from omegaconf import OmegaConf

        return {str(name): value for name, value in OmegaConf.from_dotlist([*self.search]).items()}

    def prompt_settings(self, model: str) -> DictConfig:
        """Return the settings that decide the prompts, with the tokenizer of `model`: those of the checkpoint's run, if any.

        Raises:
            ValueError: the record of the run is damaged.
        """
        from omegaconf import OmegaConf

        from verl_trgrpo.data.prompts import prompt_settings

        found = prompt_settings(config_of_run(self.model) or OmegaConf.create(), model)
        if self.template:
            options = OmegaConf.from_dotlist([*self.template])
            OmegaConf.update(found, "data.apply_chat_template_kwargs", options, merge=False, force_add=True)
        return found


def evaluate(options: EvalOptions, progress: Progress = no_progress) -> tuple[str, int]:
    """Make the missing responses, score all, and write ``report.json`` and ``report.txt`` into ``options.directory``.

    Responses are appended as they finish, so an interrupted evaluation continues where it stopped. If all are there already,
    no model is loaded.

    Returns:
        the table, and the number of responses that were made now rather than before.

    Raises:
        ValueError: wrong input, or a directory with another evaluation.
        OSError: the model cannot be found, or the directory cannot be written.
        RuntimeError: the merger or vLLM fails.
    """
    from verl_trgrpo.evaluation.accuracy import Item, render, score_responses, summarize
    from verl_trgrpo.evaluation.generation import Job, make_responses
    from verl_trgrpo.evaluation.response_store import open_store

    import_external_modules()
    default_agent = default_agent_of(options.prompt_settings(options.model))
    rows = load_evaluable_rows(
        options.data, options.limit, options.seed, default_reward=options.reward, default_agent=default_agent
    )
    raise_invalid(unused_options(options, [row for file_rows in rows for row in file_rows]))
    model = find_model(options.model)
    digests = [file_sha256(path) for path in options.data]
    with open_store(options.directory, _arguments(options, model, digests), options.data) as store:
        done = {(file, found.row, found.sample) for file in range(len(rows)) for found in store.read(file)}
        jobs = [
            Job(file, row, sample, digests[file])
            for file, file_rows in enumerate(rows)
            for row in file_rows
            for sample in range(options.sampling.k)
            if (file, row.position, sample) not in done
        ]
        if jobs:
            asyncio.run(make_responses(options, merged_model(model, options.directory), jobs, store, progress))
        items: list[Item] = []
        for file, file_rows in enumerate(rows):
            scored = score_responses(file_rows, store.read(file), progress, options.reward)
            lines = [{"row": found.row, "sample": found.sample, **vars(verdict)} for _, found, verdict in scored]
            write_text(store.path(file, ".verdicts.jsonl"), "".join(json.dumps(line) + "\n" for line in lines))
            items += scored
        summary = summarize(items, options.sampling.k, options.seed)
        table = render(summary)
        write_text(options.directory / TABLE, table)
        report = {"options": asdict(options) | asdict(options.sampling), **asdict(summary)}
        write_json(options.directory / REPORT, report, default=str)
    return table, len(jobs)


def _arguments(options: EvalOptions, model: str, digests: list[str]) -> dict[str, Any]:
    """Return everything that decides the responses.

    The address of the search server may change between two attempts; the budget of a trajectory may not.
    """
    return {
        "model": fingerprint(model),
        "data": [{"file": path.name, "sha256": digest} for path, digest in zip(options.data, digests, strict=True)],
        **asdict(options.sampling),
        **{name: getattr(options, name) for name in ("seed", "limit")},
        "search": {name: value for name, value in options.search_settings.items() if name != "url"},
        **_prompt_arguments(options, model),
    }


def _prompt_arguments(options: EvalOptions, model: str) -> dict[str, Any]:
    """Return the settings of the prompts where they are not the default, so that earlier evaluations can be continued."""
    from omegaconf import OmegaConf

    from verl_trgrpo.data.prompts import prompt_settings

    settings = options.prompt_settings(model)
    plain = prompt_settings(OmegaConf.create(), model)
    return {} if settings == plain else {"prompts": OmegaConf.to_container(settings, resolve=True)}


def unused_options(options: EvalOptions, rows: Sequence[Row]) -> list[str]:
    """Return a message for each option that none of the rows uses: their figures would be those of something else."""
    messages = []
    if options.search and not any(row.agent_name == SEARCH_AGENT for row in rows):
        messages.append(
            f"search={' '.join(options.search)}: none of the {len(rows)} rows has agent_name={SEARCH_AGENT}, so none would "
            "search; build the data with verl-trgrpo data build search-qa, or leave --search out"
        )
    if options.reward and all(has_reward(row.data_source) for row in rows):
        messages.append(f"reward={options.reward}: the data sources of all {len(rows)} rows have rewards; leave it out")
    return messages


def load_evaluable_rows(
    paths: Sequence[Path],
    limit: int | None,
    seed: int,
    own_rewards: bool = True,
    default_reward: DefaultReward | None = None,
    default_agent: str = SINGLE_TURN,
    prompt_key: str = "prompt",
) -> list[list[Row]]:
    """Return the rows of each file; with `limit`, that many of each file, drawn with `seed`, in the file's order.

    With `own_rewards`, every data source needs a reward of this package or one that was registered with it, or there is a
    `default_reward` for those without. Rows without an agent_name have the `default_agent`; `prompt_key` is the name of
    the column of the prompts.

    Raises:
        InvalidInputError: files that cannot be read, or rows that cannot be evaluated; the first few are named.
    """
    found, messages = [], []
    for path in paths:
        try:
            rows = load_rows(path, default_agent, prompt_key)
            _check_evaluable(path, rows, own_rewards, default_reward)
        except ValueError as error:
            messages.append(str(error))
            continue
        found.append(draw(rows, limit, f"limit/{seed}"))
    raise_invalid(messages)
    return found


def _check_evaluable(path: Path, rows: Sequence[Row], own_rewards: bool, default_reward: DefaultReward | None) -> None:
    try:
        for data_source in {row.data_source for row in rows} if own_rewards else ():
            find_reward(data_source, default_reward)
    except (ValueError, ImportError) as error:
        raise ValueError(f"{path}: {error}") from error
    if others := {row.agent_name for row in rows} - {SINGLE_TURN, SEARCH_AGENT}:
        raise ValueError(
            f"{path}: agent_name={', '.join(others)} cannot be evaluated here, only {SINGLE_TURN} and {SEARCH_AGENT}; build "
            "the data for one of them, or validate with veRL (trainer.val_only=true)"
        )
