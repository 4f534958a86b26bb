"""Responses to the rows that have none yet, by vLLM: in one turn, or with searches through the agent loop of training."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from verl_trgrpo.common.progress import Progress
from verl_trgrpo.common.text import first_line
from verl_trgrpo.evaluation.options import EvalOptions
from verl_trgrpo.evaluation.responses import Response, ResponseStore
from verl_trgrpo.evaluation.rows import Job
from verl_trgrpo.tasks.search_qa.rows import SEARCH_AGENT

logger = logging.getLogger(__name__)

# Responses under way at a time; vLLM itself decides how many of them it decodes together.
_CONCURRENCY = 1024
# Tokens that vLLM puts into one step on a CPU, unless one prompt may need more.
_CPU_STEP_TOKENS = 4096


async def make_responses(
    options: EvalOptions, model: str, jobs: Sequence[Job], store: ResponseStore, progress: Progress
) -> None:
    """Load `model` and append the responses to `jobs` to `store` as they finish.

    Raises:
        ValueError: a prompt is too long, or the search server does not answer.
        OSError: the model cannot be found.
        RuntimeError: vLLM fails or is missing.
    """
    async with AsyncExitStack() as opened:
        if any(job.row.agent_name == SEARCH_AGENT for job in jobs):
            from verl_trgrpo.evaluation import search  # imports veRL

            opened.push_async_callback(search.close, options.search_settings)
            await search.probe(options.search_settings)
        generator = Generator(options, model, jobs)
        opened.callback(generator.close)
        free = asyncio.Semaphore(_CONCURRENCY)

        async def respond(job: Job) -> tuple[Job, Response]:
            async with free:
                return job, await generator.respond(job)

        tasks = [asyncio.create_task(respond(job)) for job in jobs]
        try:
            for finished in progress(asyncio.as_completed(tasks), len(tasks), "responses"):
                job, response = await finished
                store.append(job.file, response)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Generator:
    """A loaded model that responds to rows, many at a time.

    The `jobs` that will be asked for decide how long a context the engine needs. Raises as `make_responses`.
    """

    def __init__(self, options: EvalOptions, model: str, jobs: Sequence[Job]) -> None:
        from transformers import AutoConfig, AutoTokenizer

        self._options = options
        self._tokenizer: Any = AutoTokenizer.from_pretrained(model)
        rows = {(job.file, job.row.position): job.row for job in jobs}
        # Token ids go to vLLM as they are, so no beginning-of-text token is added a second time.
        self._prompts: dict[tuple[int, int], Any] = {
            key: self._tokenizer.apply_chat_template(row.messages, add_generation_prompt=True, return_dict=False)
            for key, row in rows.items()
        }
        longest, most = max(map(len, self._prompts.values())), options.sampling.max_tokens
        model_limit = getattr(AutoConfig.from_pretrained(model), "max_position_embeddings", None)
        # Some models take far more than a cache can hold; asking for less than that is safe, for more is not.
        context = longest + most if model_limit is None or longest + most < model_limit else None
        self._log_file = options.directory / "vllm.log"
        self._engine = _start_engine(model, context, longest + most, options, self._log_file)
        self._limit = self._engine.model_config.max_model_len
        self._request_ids = itertools.count()
        if longest >= self._limit:
            raise ValueError(f"the longest prompt has {longest} tokens, the model takes {self._limit}")
        if longest + most > self._limit:
            logger.warning(
                "the longest prompt (%d tokens) leaves less than max_tokens %d of the model's %d tokens; such responses are "
                "cut earlier and counted as cut", longest, most, self._limit,
            )  # fmt: skip

    async def respond(self, job: Job) -> Response:
        """Return the response to one job."""
        prompt = self._prompts[job.file, job.row.position]
        room = min(self._options.sampling.max_tokens, self._limit - len(prompt))
        sampling = {"temperature": self._options.sampling.temperature, "top_p": self._options.sampling.top_p}

        async def generate(turn: int, token_ids: list[int], **more: Any) -> Any:
            return await self._generate(token_ids, seed=job.seed(self._options.seed, turn), **more)

        if job.row.agent_name == SEARCH_AGENT:
            from verl_trgrpo.evaluation.search import searching_response

            settings = self._options.search_settings
            return await searching_response(
                job.row, job.sample, generate, self._tokenizer, settings, sampling, len(prompt), room
            )
        output = await generate(0, prompt, **sampling, max_tokens=room)
        # Decoded as veRL's reward managers do, not as vLLM does step by step.
        text = self._tokenizer.decode(output.token_ids, skip_special_tokens=True)
        return Response(job.row.position, job.sample, text, len(output.token_ids), cut=output.finish_reason == "length")

    async def _generate(self, token_ids: list[int], **sampling: Any) -> Any:
        """Return vLLM's CompletionOutput (``token_ids``, ``finish_reason``) for one prompt."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(**sampling, output_kind=RequestOutputKind.FINAL_ONLY)
        request_id = str(next(self._request_ids))
        try:
            async for output in self._engine.generate({"prompt_token_ids": token_ids}, params, request_id):
                last = output.outputs[0]
        except Exception as error:  # it raises many types; the reason is often only in the log
            raise RuntimeError(f"vLLM failed ({first_line(error)}); the whole story is in {self._log_file}") from error
        return last

    def close(self) -> None:
        """End vLLM's processes."""
        self._engine.shutdown()


def _start_engine(model: str, context: int | None, step_tokens: int, options: EvalOptions, log_file: Path) -> Any:
    """Return vLLM's AsyncLLM for `model`, whose processes print into `log_file`.

    `context` is tokens of prompt and response together, None for the model's own limit; `step_tokens` those of the longest
    sequence, which must fit one step on a CPU.
    """
    from verl_trgrpo.runs.environment import accelerator_found
    from verl_trgrpo.verl_plugin.cpu import ENVIRONMENT
    from verl_trgrpo.verl_plugin.cpu.vllm import provide_vllm_distribution

    settings: dict[str, Any] = {"tensor_parallel_size": options.tensor_parallel, "seed": options.seed}
    if context is not None:
        settings["max_model_len"] = context
    # vLLM reads its environment when it is imported; what the user has set wins.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    if not accelerator_found():
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        provide_vllm_distribution()
        # bfloat16 is emulated on most processors, and graphs do not exist there.
        settings |= {"dtype": "float32", "enforce_eager": True}
        # A prompt that is split over two steps would rewind its request's random generator, which CPU ones cannot.
        settings |= {"enable_chunked_prefill": False}
        settings |= {"max_num_batched_tokens": max(_CPU_STEP_TOKENS, step_tokens, context or 0)}
    try:
        with _output_to(log_file):
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.usage.usage_lib import UsageContext
            from vllm.v1.engine.async_llm import AsyncLLM

            arguments = AsyncEngineArgs(model, disable_log_stats=True, **settings)
            # The context decides the default sizes of batches: those of offline work are the largest.
            return AsyncLLM.from_engine_args(arguments, usage_context=UsageContext.LLM_CLASS)
    except Exception as error:  # it raises many types; the reason is often only in the log
        raise RuntimeError(
            f"vLLM cannot load {model} ({first_line(error)}); the whole story is in {log_file}, and verl-trgrpo doctor says "
            "what is installed"
        ) from error


@contextmanager
def _output_to(log_file: Path) -> Iterator[None]:
    """Send standard output and error, of processes started meanwhile too, to the end of a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    try:
        with log_file.open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in enumerate(saved, start=1):
            os.dup2(copy, number)
            os.close(copy)
