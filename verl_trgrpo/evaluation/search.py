"""Responses that search, by the agent loop that training uses, over the offline engine instead of veRL's servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from verl_trgrpo.evaluation.engine import Engine
from verl_trgrpo.evaluation.responses import Response
from verl_trgrpo.tasks.search_qa.client import SearchClient, shared_client
from verl_trgrpo.tasks.search_qa.loop import SearchAgentLoop
from verl_trgrpo.tasks.search_qa.options import read_options


class _Turns:
    """Stands where veRL's server manager does, for one trajectory."""

    def __init__(self, engine: Engine, seed: Callable[[int], int]) -> None:
        self._engine, self._seed = engine, seed
        self.count = 0
        self.cut = False

    async def generate(
        self, *, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        output = await self._engine.generate(prompt_ids, **sampling_params, seed=self._seed(self.count))
        self.count += 1
        self.cut = output.finish_reason == "length"
        return TokenOutput(token_ids=list(output.token_ids), stop_reason="completed")


class Searcher:
    """Makes searching responses.

    Args:
        settings: keys of ``actor_rollout_ref.rollout.custom.search``.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._options = read_options(settings)

    async def probe(self) -> None:
        """Ask the search server once.

        Raises ValueError when it does not answer: an evaluation without searches would look like a bad model.
        """
        client = SearchClient(self._options)
        result = await client.search("test")
        await client.close()
        if result.failure:
            raise ValueError(
                f"the rows need a search server, and {', '.join(self._options.urls)} does not work: {result.failure}. Start one "
                "with verl-trgrpo search serve --index DIR, and name it with --search url=http://HOST:PORT/retrieve"
            )

    async def close(self) -> None:
        """Give back the connections of this event loop."""
        await shared_client(self._options).close()

    async def respond(
        self,
        row: int,
        sample: int,
        messages: list[dict[str, str]],
        engine: Engine,
        tokenizer: Any,
        *,
        sampling: dict[str, Any],
        seed: Callable[[int], int],
        prompt_length: int,
        response_length: int,
    ) -> Response:
        """Return a response.

        Args:
            row: position of the row in its file.
            sample: number of the sample of that row.
            messages: the prompt.
            engine: generates the turns.
            tokenizer: of the model.
            sampling: temperature and the like.
            seed: gives the sampling seed of the n-th turn, from 0.
            prompt_length: tokens of the prompt; the loop would cut a longer one.
            response_length: tokens of the whole response, observations included.
        """
        turns = _Turns(engine, seed)
        rollout = {
            "prompt_length": prompt_length,
            "response_length": response_length,
            "custom": {"search": self._settings},
        }
        config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
        loop = SearchAgentLoop(
            DictConfigWrap(config), turns, tokenizer, None, RLHFDataset, DictConfigWrap(config.data), hf_model_type=None
        )
        output = await loop.run(sampling, raw_prompt=messages)
        fields = output.extra_fields
        answered = bool(fields["rollout_metrics"]["answered"])
        return Response(
            row,
            sample,
            tokenizer.decode(output.response_ids, skip_special_tokens=True),
            sum(output.response_mask),
            # Out of room in the middle of the last turn, or because the next observation would not have fitted.
            cut=turns.cut or (not answered and turns.count <= self._options.max_searches),
            extra={name: fields[name] for name in ("model_text", "rollout_metrics")},
        )
