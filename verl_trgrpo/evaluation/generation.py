"""Responses to the rows that have none yet: in one turn, or with searches through the project's own agent loop."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from verl_trgrpo.common.problems import first_line, raise_problems
from verl_trgrpo.evaluation.engine import Engine
from verl_trgrpo.evaluation.options import EvalOptions
from verl_trgrpo.evaluation.rows import SEARCH_TAGS, EvalRow
from verl_trgrpo.evaluation.store import Response

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


def sample_seed(seed: int, file_sha256: str, row: int, sample: int, turn: int = 0) -> int:
    """Return the sampling seed of one turn of one sample: 0 to 2**63 - 1, the same whatever else is evaluated."""
    name = f"{seed}/{file_sha256}/{row}/{sample}/{turn}"
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

        self._options = options
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(model)
            limit = getattr(AutoConfig.from_pretrained(model), "max_position_embeddings", None)
        except (OSError, ValueError) as error:
            raise ValueError(f"no model could be loaded from {model} ({first_line(error)}); check it") from error
        if not self._tokenizer.chat_template:
            raise ValueError(f"the tokenizer of {model} has no chat template; evaluate an instruction-tuned model")
        self._searches = any(job.row.agent_name == SEARCH_TAGS for job in jobs)
        if self._searches:
            asyncio.run(self._probe_search())
        rows = {(job.file, job.row.position): job for job in jobs}
        self._prompts = {key: render_prompt(self._tokenizer, job.row.messages) for key, job in rows.items()}
        self._engine = Engine(
            model, self._context(limit), options.tensor_parallel, options.seed, options.out / ENGINE_LOG
        )
        self._check_lengths()

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
                respond = self._search if job.row.agent_name == SEARCH_TAGS else self._single_turn
                finished.put_nowait((job, await respond(job)))

        workers = [asyncio.create_task(work()) for _ in range(CONCURRENCY)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            if self._searches:
                await self._close_client()
            finished.put_nowait(None)

    def _context(self, model_limit: int | None) -> int | None:
        """Return the context that the engine needs, None for the model's own."""
        if self._options.max_model_len is not None:
            return self._options.max_model_len
        needed = max(map(len, self._prompts.values())) + self._options.max_tokens
        # Some models take far more than a cache can hold; asking for less than that is safe, for more is not.
        return needed if model_limit is None or needed < model_limit else None

    def _check_lengths(self) -> None:
        limit = self._engine.max_model_len
        long = [key for key, prompt in self._prompts.items() if len(prompt) >= limit]
        raise_problems(
            [f"{len(long)} prompts have {limit} tokens or more, all that the model takes; raise --max-model-len"]
            * bool(long)
        )
        longest = max(map(len, self._prompts.values()))
        if longest + self._options.max_tokens > limit:
            logger.warning(
                "the longest prompt (%d tokens) leaves less than max_tokens %d of the model's %d tokens; such responses are "
                "cut earlier and counted as cut", longest, self._options.max_tokens, limit,
            )  # fmt: skip

    def _room(self, prompt: list[int]) -> int:
        return min(self._options.max_tokens, self._engine.max_model_len - len(prompt))

    def _sampling(self) -> dict[str, Any]:
        return {"temperature": self._options.temperature, "top_p": self._options.top_p}

    def _seed(self, job: Job, turn: int = 0) -> int:
        return sample_seed(self._options.seed, job.file_sha256, job.row.position, job.sample, turn)

    async def _single_turn(self, job: Job) -> Response:
        prompt = self._prompts[job.file, job.row.position]
        output = await self._engine.generate(
            prompt, **self._sampling(), seed=self._seed(job), max_tokens=self._room(prompt)
        )
        token_ids = list(output.token_ids)
        # Decoded as veRL's reward managers do, not as vLLM does step by step.
        text = self._tokenizer.decode(token_ids, skip_special_tokens=True)
        return Response(job.row.position, job.sample, text, len(token_ids), output.finish_reason == "length")

    async def _search(self, job: Job) -> Response:
        from verl_trgrpo.evaluation.search import search_response

        prompt = self._prompts[job.file, job.row.position]
        return await search_response(
            job,
            self._engine,
            self._tokenizer,
            sampling=self._sampling(),
            seed=lambda turn: self._seed(job, turn),
            prompt_length=len(prompt),
            response_length=self._room(prompt),
            settings=self._options.search,
        )

    async def _probe_search(self) -> None:
        from verl_trgrpo.evaluation.search import probe

        await probe(self._options.search)

    async def _close_client(self) -> None:
        from verl_trgrpo.evaluation.search import close_client

        await close_client(self._options.search)


async def _cancel_all() -> None:
    """End whatever else runs in this event loop, as after an interruption."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
