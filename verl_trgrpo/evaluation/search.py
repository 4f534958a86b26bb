"""Responses that search, by the agent loop that training uses, over the offline engine instead of veRL's servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from verl_trgrpo.evaluation.responses import Response
from verl_trgrpo.evaluation.rows import EvalRow
from verl_trgrpo.tasks.search_qa.client import shared_client
from verl_trgrpo.tasks.search_qa.loop import SearchAgentLoop
from verl_trgrpo.tasks.search_qa.search_options import read_options


async def probe(settings: Mapping[str, Any]) -> None:
    """Ask the search server once; `close` gives the connection back.

    Raises ValueError when it does not answer: an evaluation without searches would look like a bad model.
    """
    options = read_options(settings)
    result = await shared_client(options).search("test")
    if result.failure:
        raise ValueError(
            f"the rows need a search server, and {', '.join(options.urls)} does not work: {result.failure}. Start one "
            "with verl-trgrpo search serve --index DIR, and name it with --search url=http://HOST:PORT/retrieve"
        )


async def close(settings: Mapping[str, Any]) -> None:
    """Give back the connections of this event loop."""
    await shared_client(read_options(settings)).close()


async def searching_response(
    row: EvalRow,
    sample: int,
    generate: Callable[..., Awaitable[Any]],
    tokenizer: Any,
    settings: Mapping[str, Any],
    sampling: dict[str, Any],
    prompt_length: int,
    response_length: int,
) -> Response:
    """Return a response to a row.

    `generate` gives vLLM's output of the n-th turn, from 0, for token ids and sampling parameters; `settings` are the keys
    of ``actor_rollout_ref.rollout.custom.search``. The loop would cut a prompt longer than `prompt_length`;
    `response_length` is tokens of the whole response, observations included.
    """
    turns = _Turns(generate)
    rollout = {"prompt_length": prompt_length, "response_length": response_length, "custom": {"search": {**settings}}}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
    loop = SearchAgentLoop(
        DictConfigWrap(config), turns, tokenizer, None, RLHFDataset, DictConfigWrap(config.data), hf_model_type=None
    )
    output = await loop.run(sampling, raw_prompt=row.messages)
    extra = {name: output.extra_fields[name] for name in ("model_text", "rollout_metrics")}
    answered = bool(extra["rollout_metrics"]["answered"])
    return Response(
        row.position,
        sample,
        tokenizer.decode(output.response_ids, skip_special_tokens=True),
        sum(output.response_mask),
        # Out of room in the middle of the last turn, or because the next observation would not have fitted.
        cut=turns.cut or (not answered and turns.count <= read_options(settings).max_searches),
        extra=extra,
    )


class _Turns:
    """Stands where veRL's server manager does, for one trajectory."""

    def __init__(self, generate: Callable[..., Awaitable[Any]]) -> None:
        self._generate = generate
        self.count = 0
        self.cut = False

    async def generate(self, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any) -> TokenOutput:
        output = await self._generate(self.count, prompt_ids, **sampling_params)
        self.count += 1
        self.cut = output.finish_reason == "length"
        return TokenOutput(token_ids=list(output.token_ids), stop_reason="completed")
