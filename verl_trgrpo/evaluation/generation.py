"""Responses to the rows that have none yet: in one turn, or with searches through the project's own agent loop."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from verl_trgrpo.common.problems import first_line
from verl_trgrpo.evaluation.engine import Engine
from verl_trgrpo.evaluation.options import EvalOptions
from verl_trgrpo.evaluation.responses import Response
from verl_trgrpo.evaluation.rows import SEARCH_TAGS, EvalRow

logger = logging.getLogger(__name__)

# Responses under way at a time; vLLM itself decides how many of them it decodes together.
CONCURRENCY = 1024

ENGINE_LOG = "vllm.log"


@dataclass(frozen=True)
class Job:
    """One response to make: the row, the number of its file, the number of the sample, and the file's sha256."""

    file: int
    row: EvalRow
    sample: int
    file_sha256: str


def sample_seed(seed: int, job: Job, turn: int = 0) -> int:
    """Return the sampling seed of one turn of one sample: 0 to 2**63 - 1, the same whatever else is evaluated."""
    name = f"{seed}/{job.file_sha256}/{job.row.position}/{job.sample}/{turn}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def render_prompt(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    """Return the token ids of a chat with the generation prompt, by the tokenizer's own template.

    The ids go to vLLM as they are, so no beginning-of-text token is added a second time.
    """
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False))


class Generator:
    """Loads a model and makes responses.

    Args:
        options: of the evaluation.
        model: what vLLM loads.
        jobs: what will be asked for; it decides how long a context the engine needs.

    Raises:
        ValueError: the tokenizer has no chat template, a prompt is too long, or the search server does not answer.
    """

    def __init__(self, options: EvalOptions, model: str, jobs: Sequence[Job]) -> None:
        from transformers import AutoConfig, AutoTokenizer

        self._seed, self._max_tokens = options.seed, options.sampling.max_tokens
        self._sampling = {"temperature": options.sampling.temperature, "top_p": options.sampling.top_p}
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(model)
            model_limit = getattr(AutoConfig.from_pretrained(model), "max_position_embeddings", None)
        except (OSError, ValueError) as error:
            raise ValueError(f"no model could be loaded from {model} ({first_line(error)}); check it") from error
        if not self._tokenizer.chat_template:
            raise ValueError(f"the tokenizer of {model} has no chat template; evaluate an instruction-tuned model")
        self._searcher: Any = None
        if any(job.row.agent_name == SEARCH_TAGS for job in jobs):
            from verl_trgrpo.evaluation.search import Searcher  # imports veRL

            self._searcher = Searcher(options.search_settings)
            asyncio.run(self._searcher.probe())
        rows = {(job.file, job.row.position): job.row for job in jobs}
        self._prompts = {key: render_prompt(self._tokenizer, row.messages) for key, row in rows.items()}
        longest = max(map(len, self._prompts.values()))
        context = options.max_model_len
        if context is None and (model_limit is None or longest + self._max_tokens < model_limit):
            # Some models take far more than a cache can hold; asking for less than that is safe, for more is not.
            context = longest + self._max_tokens
        self._engine = Engine(model, context, options.tensor_parallel, options.seed, options.directory / ENGINE_LOG)
        limit = self._engine.max_model_len
        if longest >= limit:
            raise ValueError(f"the longest prompt has {longest} tokens, the model takes {limit}; raise --max-model-len")
        if longest + self._max_tokens > limit:
            logger.warning(
                "the longest prompt (%d tokens) leaves less than max_tokens %d of the model's %d tokens; such responses are "
                "cut earlier and counted as cut", longest, self._max_tokens, limit,
            )  # fmt: skip

    def responses(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Response]]:
        """Yield the responses in the order in which they finish."""
        loop = asyncio.new_event_loop()
        finished: asyncio.Queue[tuple[Job, Response] | None] = asyncio.Queue()
        task = loop.create_task(self._work(iter(jobs), finished))
        try:
            while (item := loop.run_until_complete(finished.get())) is not None:
                yield item
            loop.run_until_complete(task)  # raises what went wrong
        finally:
            loop.run_until_complete(_cancel_all())
            loop.close()

    async def _work(self, jobs: Iterator[Job], finished: asyncio.Queue[tuple[Job, Response] | None]) -> None:
        """Put each response into the queue, and None at the end, whatever the end is."""

        async def work() -> None:
            for job in jobs:
                finished.put_nowait((job, await self._respond(job)))

        workers = [asyncio.create_task(work()) for _ in range(CONCURRENCY)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            if self._searcher is not None:
                await self._searcher.close()
            finished.put_nowait(None)

    async def _respond(self, job: Job) -> Response:
        prompt, row = self._prompts[job.file, job.row.position], job.row
        room = min(self._max_tokens, self._engine.max_model_len - len(prompt))
        seed = partial(sample_seed, self._seed, job)
        if row.agent_name == SEARCH_TAGS:
            return await self._searcher.respond(
                row.position, job.sample, row.messages, self._engine, self._tokenizer,
                sampling=self._sampling, seed=seed, prompt_length=len(prompt), response_length=room,
            )  # fmt: skip
        output = await self._engine.generate(prompt, **self._sampling, seed=seed(), max_tokens=room)
        token_ids = list(output.token_ids)
        # Decoded as veRL's reward managers do, not as vLLM does step by step.
        text = self._tokenizer.decode(token_ids, skip_special_tokens=True)
        return Response(row.position, job.sample, text, len(token_ids), output.finish_reason == "length")


async def _cancel_all() -> None:
    """End whatever else runs in this event loop, as after an interruption."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
