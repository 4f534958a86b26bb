"""vLLM's offline engine behind an asynchronous call, so that single responses and searching ones share one batch."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verl_trgrpo.common.problems import first_line

# Tokens that vLLM puts into one step on a CPU, unless one prompt may need more.
_CPU_STEP_TOKENS = 4096


def prepare_environment() -> bool:
    """Set what vLLM needs before it is imported; returns whether this machine has no accelerator.

    Variables that the user has set win.
    """
    from verl_trgrpo.runs.environment import accelerator_found
    from verl_trgrpo.verl_plugin.cpu import ENVIRONMENT
    from verl_trgrpo.verl_plugin.cpu.vllm_distribution import provide_vllm_distribution

    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    on_cpu = not accelerator_found()
    if on_cpu:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        provide_vllm_distribution()
    return on_cpu


class Engine:
    """Generates from token ids. Requests that are waiting at the same time run together.

    Args:
        model: directory or hub name.
        max_model_len: tokens of prompt and response together; None for the model's own limit.
        tensor_parallel: accelerators that share the model.
        seed: of the engine; each request has its own, too.
        log_file: receives what vLLM's processes print.
    """

    def __init__(self, model: str, max_model_len: int | None, tensor_parallel: int, seed: int, log_file: Path) -> None:
        on_cpu = prepare_environment()
        try:
            from vllm import LLM, SamplingParams
            from vllm.sampling_params import RequestOutputKind
        except ImportError as error:
            raise ValueError(
                f"vLLM cannot be imported ({error}); install verl-trgrpo[gpu], or verl-trgrpo[cpu] without an accelerator"
            ) from error
        settings: dict[str, Any] = {"model": model, "tensor_parallel_size": tensor_parallel, "seed": seed}
        if max_model_len is not None:
            settings["max_model_len"] = max_model_len
        if on_cpu:
            # bfloat16 is emulated on most processors, and graphs do not exist there.
            settings |= {"dtype": "float32", "enforce_eager": True}
            # A prompt that is split over two steps would rewind its request's random generator, which CPU ones cannot.
            settings |= {"enable_chunked_prefill": False, "max_num_batched_tokens": _step_tokens(model, max_model_len)}
        self._log_file = log_file
        try:
            with _output_to(log_file):
                self._llm: Any = LLM(**settings).llm_engine
        except Exception as error:  # it raises many types; the reason is often only in the log
            raise RuntimeError(
                f"vLLM cannot load {model} ({first_line(error)}); the whole story is in {log_file}"
            ) from error
        self._params, self._final_only = SamplingParams, RequestOutputKind.FINAL_ONLY
        self._waiting: list[tuple[list[int], Any, asyncio.Future]] = []
        self._running: dict[str, asyncio.Future] = {}
        self._loop_task: asyncio.Task | None = None
        self._thread = ThreadPoolExecutor(1, "vllm-step")
        self._count = 0

    @property
    def max_model_len(self) -> int:
        """Tokens of prompt and response together that the engine takes."""
        return int(self._llm.model_config.max_model_len)

    async def generate(self, token_ids: Sequence[int], **sampling: Any) -> Any:
        """Return vLLM's CompletionOutput (``token_ids``, ``text``, ``finish_reason``) for one prompt.

        Args:
            token_ids: of the prompt.
            **sampling: fields of vLLM's SamplingParams.
        """
        future = asyncio.get_running_loop().create_future()
        params = self._params(**sampling, output_kind=self._final_only)
        self._waiting.append((list(token_ids), params, future))
        if self._loop_task is None or self._loop_task.done():
            self._loop_task = asyncio.create_task(self._step_until_idle())
        return await future

    async def _step_until_idle(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting or self._running:
                # Between two steps only: the engine is not made for two threads.
                self._submit()
                for output in await loop.run_in_executor(self._thread, self._llm.step):
                    if output.finished:
                        future = self._running.pop(output.request_id)
                        if not future.done():  # nobody waits any more after an interruption
                            future.set_result(output.outputs[0])
        except Exception as error:  # whatever it is, nobody may wait for ever
            waiting = [*self._running.values(), *(future for _, _, future in self._waiting)]
            self._running.clear()
            self._waiting.clear()
            for future in waiting:
                if not future.done():
                    reason = f"vLLM failed ({type(error).__name__}: {error}); the whole story is in {self._log_file}"
                    future.set_exception(RuntimeError(reason))

    def _submit(self) -> None:
        for token_ids, params, future in self._waiting:
            request_id = str(self._count)
            self._count += 1
            self._llm.add_request(request_id, {"prompt_token_ids": token_ids}, params)
            self._running[request_id] = future
        self._waiting.clear()


def _step_tokens(model: str, max_model_len: int | None) -> int:
    """Return how many tokens a step must be able to take so that no prompt has to be split."""
    if max_model_len is None:
        from transformers import AutoConfig

        max_model_len = getattr(AutoConfig.from_pretrained(model), "max_position_embeddings", None)
    return max(_CPU_STEP_TOKENS, max_model_len or 0)


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
