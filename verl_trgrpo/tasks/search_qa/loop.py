"""Agent loop for veRL whose responses search in Search-R1's tags; the model need not be trained on tool calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.utils.profiler import simple_timer
from verl.workers.rollout.replica import TokenOutput

from verl_trgrpo.data.rows import CUT_OFF
from verl_trgrpo.tasks.search_qa.checks import run_checks
from verl_trgrpo.tasks.search_qa.client import shared_client
from verl_trgrpo.tasks.search_qa.format import (
    LAST_TURN,
    REMINDER,
    STOP_STRINGS,
    Action,
    model_text,
    observation_frame,
    read_action,
)
from verl_trgrpo.tasks.search_qa.search_options import read_search_options

# More than text has on average; tokenizing a passage of a megabyte to keep 500 tokens would stop the event loop for seconds.
_CHARS_PER_TOKEN = 16


@dataclass
class _Trajectory:
    """A response while it grows. Tokens are only ever appended: text is never turned into tokens again."""

    prompt_ids: list[int]
    response_ids: list[int] = field(default_factory=list)
    response_mask: list[int] = field(default_factory=list)  # 1 for tokens of the model, 0 for observations
    log_probs: list[float] = field(default_factory=list)  # 0.0 for observations
    has_log_probs: bool = True
    turns: int = 0
    cut_off: bool = False  # the last turn ended at its limit without an answer, or the observation did not fit
    from_server: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("searches", "failed_searches", "malformed_turns", "answered"), 0.0)
    )

    def add_turn(self, output: TokenOutput) -> None:
        self.turns += 1
        self.response_ids += output.token_ids
        self.response_mask += [1] * len(output.token_ids)
        self.has_log_probs = self.has_log_probs and output.log_probs is not None
        self.log_probs += output.log_probs or [0.0] * len(output.token_ids)
        first_steps = {name: self.from_server[name] for name in ("min_global_steps",) if name in self.from_server}
        self.from_server |= output.extra_fields | first_steps  # the weights may be updated between turns

    def add_observation(self, token_ids: list[int]) -> None:
        self.response_ids += token_ids
        self.response_mask += [0] * len(token_ids)
        self.log_probs += [0.0] * len(token_ids)


class SearchAgentLoop(AgentLoopBase):
    """Lets the model think, search and answer in turns; see `format` for the tags and `SearchOptions` for the budget.

    ``data.max_response_length`` bounds the whole response, observations included.
    """

    run_checks = staticmethod(run_checks)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._options = read_search_options((self.rollout_config.get("custom") or {}).get("search"))
        self._response_length = self.rollout_config.response_length
        self._tokenizer: Any = self.tokenizer

    async def run(self, sampling_params: dict[str, Any], priority: int = 0, **kwargs: Any) -> AgentLoopOutput:
        """Generate one response; `sampling_params` and `kwargs` (a row of the data set) are veRL's."""
        metrics: dict[str, Any] = {}
        trajectory = _Trajectory(self._prompt_ids(list(kwargs["raw_prompt"])))
        deterministic = getattr(self.rollout_config, "full_determinism", False)
        request_id = f"det-{int(priority)}" if deterministic else uuid4().hex
        while True:
            room = min(self._response_length - len(trajectory.response_ids), self._options.max_turn_tokens)
            output = await self._generate(trajectory, sampling_params, request_id, int(priority), room, metrics)
            trajectory.add_turn(output)
            action = read_action(self._decode(output.token_ids))
            trajectory.counts["answered"] = float(action.kind == "answer")
            if action.kind == "answer" or trajectory.turns > self._options.max_searches or not output.token_ids:
                trajectory.cut_off = action.kind != "answer" and len(output.token_ids) >= room
                break
            observation = self._framed(await self._observe(action, trajectory.counts, metrics), trajectory.turns)
            if len(trajectory.response_ids) + len(observation) >= self._response_length:
                trajectory.cut_off = True
                break
            trajectory.add_observation(observation)
        return self._output(trajectory, metrics)

    def _prompt_ids(self, messages: list[dict[str, Any]]) -> list[int]:
        # veRL's own function for this has another name in each release.
        token_ids = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False, **self.apply_chat_template_kwargs
        )
        return self._cap_text_prompt_length(token_ids)

    async def _generate(
        self,
        trajectory: _Trajectory,
        sampling_params: dict[str, Any],
        request_id: str,
        priority: int,
        room: int,
        metrics: dict[str, Any],
    ) -> TokenOutput:
        with simple_timer("generate_sequences", metrics):
            output: TokenOutput = await self.server_manager.generate(
                request_id=request_id,
                prompt_ids=trajectory.prompt_ids + trajectory.response_ids,
                sampling_params={
                    **sampling_params,
                    "max_tokens": room,
                    "stop": list(STOP_STRINGS),
                    "include_stop_str_in_output": True,
                },
                priority=priority,
            )
        preempted = -1 if output.num_preempted is None else output.num_preempted
        metrics["num_preempted"] = max(metrics.get("num_preempted", -1), preempted)
        return output

    async def _observe(self, action: Action, counts: dict[str, float], metrics: dict[str, Any]) -> str:
        """Return the text of the observation after a turn that did not answer."""
        if action.kind == "malformed":
            counts["malformed_turns"] += 1
            return REMINDER
        with simple_timer("tool_calls", metrics):
            result = await shared_client(self._options).search(action.content)
        counts["searches"] += 1
        counts["failed_searches"] += bool(result.failure)
        return result.text

    def _framed(self, text: str, turns: int) -> list[int]:
        """Return the tokens of an observation, cut to its budget."""
        note = LAST_TURN if turns == self._options.max_searches else ""
        opening, closing = map(self._encode, observation_frame(note))
        room = max(0, self._options.max_observation_tokens - len(opening) - len(closing))
        return opening + self._encode(text[: room * _CHARS_PER_TOKEN])[:room] + closing

    def _encode(self, text: str) -> list[int]:
        # Retrieved text must not end a turn or begin one: "<|im_end|>" in a passage is seven ordinary tokens.
        return self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)

    def _decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=True)

    def _output(self, trajectory: _Trajectory, metrics: dict[str, Any]) -> AgentLoopOutput:
        end = self._response_length
        response_ids, response_mask = trajectory.response_ids[:end], trajectory.response_mask[:end]
        return AgentLoopOutput(
            prompt_ids=trajectory.prompt_ids,
            response_ids=response_ids,
            response_mask=response_mask,
            response_logprobs=trajectory.log_probs[:end] if trajectory.has_log_probs else None,
            num_turns=2 * trajectory.turns,  # a prompt or an observation before each turn of the model
            metrics=AgentLoopMetrics(**metrics),
            extra_fields={
                **trajectory.from_server,
                "turn_scores": [],
                "tool_rewards": [],
                "model_text": model_text(response_ids, response_mask, self._tokenizer),
                "rollout_metrics": trajectory.counts,
                CUT_OFF: trajectory.cut_off,
            },
        )
