"""Generate responses with vLLM: in one turn, or in several through the agent loop of training."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import math
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_trgrpo.common.files import open_plain
from verl_trgrpo.common.progress import Progress, guarded_children
from verl_trgrpo.common.text import first_line
from verl_trgrpo.data.prompts import RolloutPrompts, close_sandbox, context_of
from verl_trgrpo.data.rows import CUT_OFF, THINKING_OPENED, Row
from verl_trgrpo.evaluation.options import EvalOptions
from verl_trgrpo.evaluation.rare_tokens import Written
from verl_trgrpo.evaluation.response_store import Response, ResponseStore
from verl_trgrpo.tasks.registry import known_agent_loops
from verl_trgrpo.tasks.task import AgentLoop, imported

logger = logging.getLogger(__name__)

# Responses under way at a time; vLLM itself decides how many of them it decodes together.
_CONCURRENCY = 1024
# Tokens that vLLM puts into one step on a CPU, unless one prompt may need more.
_CPU_STEP_TOKENS = 4096


@dataclass(frozen=True)
class Job:
    """One response to make: the row, the number of its file, the number of the sample, and the file's sha256."""

    file: int
    row: Row
    sample: int
    file_sha256: str

    def seed(self, seed: int, turn: int = 0) -> int:
        """Return the sampling seed of one turn, in [0, 2**63); it does not depend on the other jobs of an evaluation."""
        name = f"{seed}/{self.file_sha256}/{self.row.position}/{self.sample}/{turn}"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


async def make_responses(
    options: EvalOptions,
    model: str,
    jobs: Sequence[Job],
    store: ResponseStore,
    progress: Progress,
    then: Callable[[Generator], Awaitable[None]] | None = None,
) -> None:
    """Load `model` and append the responses to `jobs` to `store` as they finish; `then` is called with the loaded model.

    Raises:
        ValueError: a prompt is too long, or an agent loop lacks what it needs.
        OSError: the model cannot be found.
        RuntimeError: vLLM fails or is missing.
    """
    async with AsyncExitStack() as opened:
        agents = {job.row.agent_name for job in jobs}
        for loop in (loop for name, loop in known_agent_loops().items() if name in agents):
            imported(loop.loop)  # importing veRL takes seconds; do it before the engine waits for it.
            if loop.opened:
                await opened.enter_async_context(imported(loop.opened)(options.loop_settings(loop)))
        opened.enter_context(guarded_children())
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
        if then:
            await then(generator)


class Generator:
    """A loaded model that responds to rows, many at a time.

    The `jobs` to come determine the length of context that the engine needs. Raises as `make_responses`.
    """

    def __init__(self, options: EvalOptions, model: str, jobs: Sequence[Job]) -> None:
        self._options = options
        self._sampling = {"temperature": options.sampling.temperature, "top_p": options.sampling.top_p}
        prompts = RolloutPrompts(options.prompt_settings(model))
        # Kept with the responses: scoring does not load the tokenizer.
        self.extra = {THINKING_OPENED: True} if prompts.thinking_opened else {}
        rows = {(job.file, job.row.position): job.row for job in jobs}
        # Token ids go to vLLM as they are, so no beginning-of-text token is added a second time.
        begun = prompts.of({"prompt": row.messages, "agent_name": row.agent_name} for row in rows.values())
        self._tokenizer, self._template = prompts.tokenizer, prompts.template
        self._prompts = {key: prompt.token_ids for key, prompt in zip(rows, begun, strict=True)}
        longest, most = max(map(len, self._prompts.values())), options.sampling.max_tokens
        model_limit = context_of(model)
        # Some models take far more than a cache can hold; requesting less than that is safe, more is not.
        context = longest + most if model_limit is None or longest + most < model_limit else None
        self._log_file = options.directory / "vllm.log"
        self._engine = _start_engine(model, context, longest + most, options, self._log_file)
        self._limit = self._engine.model_config.max_model_len
        self._request_ids = itertools.count()
        if longest >= self._limit:
            raise ValueError(
                f"the longest prompt has {longest} tokens, the model takes {self._limit}; leave out long prompts"
            )
        if longest + most > self._limit:
            logger.warning(
                "the longest prompt (%d tokens) leaves less than max_tokens %d of the model's %d tokens; such responses are "
                "cut earlier and counted as cut", longest, most, self._limit,
            )  # fmt: skip

    async def respond(self, job: Job) -> Response:
        """Return the response to one job."""
        prompt = self._prompts[job.file, job.row.position]
        room = min(self._options.sampling.max_tokens, self._limit - len(prompt))
        if loop := known_agent_loops().get(job.row.agent_name):
            return await self._respond_in_turns(job, loop, len(prompt), room)
        output = await self.generate(job, 0, prompt, **self._sampling, max_tokens=room)
        # Decoded as veRL's reward managers do, not as vLLM does step by step.
        text = self._tokenizer.decode(output.token_ids, skip_special_tokens=True)
        cut = output.finish_reason == "length"
        return Response(job.row.position, job.sample, text, len(output.token_ids), cut, dict(self.extra))

    async def write(self, job: Job, begun: Sequence[int], turn: int, logprobs: int = 1) -> Written:
        """Return a single-turn answer that begins with the tokens `begun`; `turn` chooses the random numbers.

        Probabilities are those of the sampling distribution's logits at temperature 1, of the tokens behind `begun` alone.
        """
        prompt = [*self._prompts[job.file, job.row.position], *begun]
        room = min(self._options.sampling.max_tokens - len(begun), self._limit - len(prompt))
        if room < 1 or (begun and begun[-1] in self._tokenizer.end_tokens):
            output_ids, table, cut = list[int](), list[Any](), room < 1
        else:
            output = await self.generate(job, turn, prompt, **self._sampling, max_tokens=room, logprobs=logprobs)
            output_ids, table, cut = list(output.token_ids), output.logprobs or [], output.finish_reason == "length"
        probs = [math.exp(row[token].logprob) for token, row in zip(output_ids, table, strict=False)]
        others = [
            max((one for one in row if one != token), key=lambda one: row[one].logprob, default=token)
            for token, row in zip(output_ids, table, strict=False)
        ]
        tokens = [*begun, *output_ids]
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return Written(tokens, [1.0] * len(begun) + probs, [*begun, *others], text, cut)

    async def _respond_in_turns(self, job: Job, loop: AgentLoop, prompt_length: int, response_length: int) -> Response:
        """Run a task's agent loop over this engine; lengths are in tokens, those of observations included."""
        from omegaconf import OmegaConf
        from verl.experimental.agent_loop.agent_loop import DictConfigWrap
        from verl.utils.dataset.rl_dataset import RLHFDataset

        custom = {loop.section: self._options.loop_settings(loop)} if loop.section else {}
        rollout = {"prompt_length": prompt_length, "response_length": response_length, "custom": custom}
        data = {"apply_chat_template_kwargs": self._template}
        config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": data})
        wrapped = DictConfigWrap(config), DictConfigWrap(config.data)
        turns = _Turns(self, job)
        running = imported(loop.loop)(
            wrapped[0], turns, self._tokenizer, None, RLHFDataset, wrapped[1], hf_model_type=None
        )
        output = await running.run(self._sampling, raw_prompt=job.row.messages)
        given = output.extra_fields
        extra = {name: given[name] for name in ("model_text", "rollout_metrics") if name in given}
        text = self._tokenizer.decode(output.response_ids, skip_special_tokens=True)
        written, cut = sum(output.response_mask), bool(given.get(CUT_OFF, False))
        return Response(job.row.position, job.sample, text, written, cut, self.extra | extra)

    async def generate(self, job: Job, turn: int, token_ids: list[int], **sampling: Any) -> Any:
        """Return vLLM's CompletionOutput (``token_ids``, ``finish_reason``) for one turn of a job, from 0."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        seed = job.seed(self._options.seed, turn)
        params = SamplingParams(**sampling, seed=seed, output_kind=RequestOutputKind.FINAL_ONLY)
        request_id = str(next(self._request_ids))
        try:
            async for output in self._engine.generate({"prompt_token_ids": token_ids}, params, request_id):
                last = output.outputs[0]
        except Exception as error:  # it raises many types; the reason is often only in the log
            raise RuntimeError(f"vLLM failed ({first_line(error)}); full log: {self._log_file}") from error
        return last

    def close(self) -> None:
        """End vLLM's processes, and that of the tokenizer."""
        close_sandbox()
        self._engine.shutdown()


class _Turns:
    """Replaces veRL's server manager for one trajectory."""

    def __init__(self, generator: Generator, job: Job) -> None:
        self._generator, self._job = generator, job
        self.count = 0

    async def generate(self, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        output = await self._generator.generate(self._job, self.count, prompt_ids, **sampling_params)
        self.count += 1
        return TokenOutput(token_ids=list(output.token_ids), stop_reason="completed")


def _start_engine(model: str, context: int | None, step_tokens: int, options: EvalOptions, log_file: Path) -> Any:
    """Start vLLM's AsyncLLM for `model`; its processes print into `log_file`.

    The `context`, in tokens, is that of prompt and response together (None for the model's own limit); one step on a CPU
    must take `step_tokens`.
    """
    from verl_trgrpo.runs.environment import accelerator_found
    from verl_trgrpo.verl_plugin.cpu import CPU_ENVIRONMENT
    from verl_trgrpo.verl_plugin.cpu.vllm import provide_vllm_distribution
    from verl_trgrpo.verl_plugin.loopback import LOOPBACK_ENVIRONMENT, with_defaults

    settings: dict[str, Any] = {"tensor_parallel_size": options.tensor_parallel, "seed": options.seed}
    if context is not None:
        settings["max_model_len"] = context
    # vLLM reads its environment when it is imported.
    on_cpu = not accelerator_found()
    quiet = {"VLLM_LOGGING_LEVEL": "WARNING"}
    os.environ.update(with_defaults(os.environ, quiet, LOOPBACK_ENVIRONMENT, CPU_ENVIRONMENT if on_cpu else {}))
    if on_cpu:
        provide_vllm_distribution()
        # bfloat16 is emulated on most processors, and graphs do not exist there.
        settings |= {"dtype": "float32", "enforce_eager": True}
        # A prompt that is split over two steps would rewind its request's random generator, which CPU ones cannot.
        settings |= {"enable_chunked_prefill": False, "max_num_batched_tokens": max(_CPU_STEP_TOKENS, step_tokens)}
    try:
        with _output_to(log_file):
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.usage.usage_lib import UsageContext
            from vllm.v1.engine.async_llm import AsyncLLM

            arguments = AsyncEngineArgs(model, disable_log_stats=True, **settings)
            # The usage context determines the default batch sizes: those of offline work are the largest.
            return AsyncLLM.from_engine_args(arguments, usage_context=UsageContext.LLM_CLASS)
    except Exception as error:  # it raises many types; the reason is often only in the log
        raise RuntimeError(
            f"vLLM cannot load {model} ({first_line(error)}); full log: {log_file}. `verl-trgrpo doctor` "
            "shows what is installed"
        ) from error


@contextmanager
def _output_to(log_file: Path) -> Iterator[None]:
    """Send standard output and error, of processes started meanwhile too, to the end of a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    try:
        with os.fdopen(open_plain(log_file, os.O_APPEND), "ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in enumerate(saved, start=1):
            os.dup2(copy, number)
            os.close(copy)
