"""Run iGRPO's two stages as an agent loop (arXiv 2602.09000, of which abstract and summaries were read).

Stage 1 samples N drafts of a prompt's answer and keeps the one with the highest reward; stage 2 appends it to the prompt, and
GRPO, with any loss of this project, trains on the group of G responses to that. Drafts are not trained on. N and G share the
budget of GRPO's group: N + G responses for a prompt, half of them drafts. Validation is single shot, on the prompt alone, as the
model will be used.

All responses of a group have one draft: veRL runs them as tasks of one event loop, where the first of them samples. Its v1 and
its fully asynchronous trainer do so always; the others cut a batch into equal parts for the workers, which may cut groups.
Tests: tests/test_igrpo.py, and a training in tests/cluster/test_all_algorithms.py.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, NamedTuple

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from verl_trgrpo.common.findings import Finding, findings_of
from verl_trgrpo.common.options import Options
from verl_trgrpo.data.prompts import opens_thinking
from verl_trgrpo.runs.keys import ROLLOUT
from verl_trgrpo.tasks.reward_input import reward_input
from verl_trgrpo.tasks.reward_manager import reward_function

_OPTIONS = f"{ROLLOUT}.custom.igrpo"


@dataclass(frozen=True)
class DraftOptions(Options):
    """Hold the options at ``actor_rollout_ref.rollout.custom.igrpo``.

    Args:
        drafts: N, the number of drafts for each prompt of a step, beside ``rollout.n`` responses; >= 1.
        request: appended to the last message; {draft} is replaced by the best one.
        system: appended to the system message, which is added where a prompt has none; an empty string adds nothing. It has
            the rules of the paper's prompt (Appendix C) as summaries give them: a draft is guidance and not the truth, and is to
            be improved on and not repeated. The wording of both is this project's.

    Raises:
        ValueError: a wrong value; all are listed.
    """

    where = "rollout.custom.igrpo."
    drafts: Annotated[int, "[1, inf)"] = 4
    request: str = "\n\nAn earlier attempt:\n{draft}\n\nWrite a better answer, in the same form."
    system: str = (
        "The question comes with an earlier attempt at an answer. Take it as a hint that may be wrong, not as the truth: check "
        "every step of it. Keep what holds, correct what does not, and write a complete answer of your own that improves on "
        "the attempt. Do not repeat the attempt, and do not mention it."
    )

    def problems(self) -> list[str]:
        """Return a message for a value that is not a text, or has no place for the draft."""
        messages = []
        if not isinstance(self.request, str) or "{draft}" not in self.request:
            messages.append(f"request={self.request!r} is not a string that contains {{draft}}")
        if not isinstance(self.system, str):
            messages.append(f"system={self.system!r} is not a string")
        return messages

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None) -> DraftOptions:
        """Build the options from a section of the configuration.

        Raises:
            ValueError: unknown keys or wrong values.
        """
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(settings or {}) - {*known}):
            raise ValueError(f"rollout.custom.igrpo: unknown key {', '.join(unknown)}; known are {', '.join(known)}")
        return cls(**dict(settings or {}))


class Draft(NamedTuple):
    """Hold the best draft of a prompt: its text, its reward, and the mean reward of all."""

    text: str
    score: float
    mean: float


# By the group's uid, for as long as a response of the group waits for it or uses it.
_drafts: weakref.WeakValueDictionary[str, asyncio.Task[Draft]] = weakref.WeakValueDictionary()


class DraftAgentLoop(SingleTurnAgentLoop):
    """Extend veRL's single-turn loop: training prompts carry the best of several drafts.

    ``data.max_prompt_length`` has to hold prompt and draft; a group whose draft does not fit is trained without one.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._options = DraftOptions.of((self.rollout_config.get("custom") or {}).get("igrpo"))
        self._tokenizer: Any = self.tokenizer
        self._thinking_opened = opens_thinking(self._tokenizer, **self.apply_chat_template_kwargs)

    async def run(self, sampling_params: dict[str, Any], priority: int = 0, **kwargs: Any) -> AgentLoopOutput:
        """Return one response.

        Args:
            sampling_params: of the rollout engine.
            priority: of the rollout engine.
            **kwargs: a row of the data set, and veRL's ``uid`` of its group.

        Raises:
            ValueError: the row has no ``extra_info.split``, which says whether it is trained on.
        """
        split = (kwargs.get("extra_info") or {}).get("split")
        if split is None:
            raise ValueError(
                "extra_info.split is missing in a row; agent=igrpo needs it: train, or test for validation"
            )
        if split != "train":
            return await super().run(sampling_params, priority, **kwargs)
        uid = kwargs["uid"]
        task = _drafts.get(uid)
        if task is None:
            task = _drafts[uid] = asyncio.create_task(self._best_draft(sampling_params, priority, kwargs))
        # Shielded: the end of one response must not take the draft from the others of its group.
        draft = await asyncio.shield(task)
        messages = self._with_draft(list(kwargs["raw_prompt"]), draft.text)
        fits = self._length(messages) <= self.prompt_length
        output = await super().run(sampling_params, priority, **(kwargs | {"raw_prompt": messages} if fits else kwargs))
        output.extra_fields["igrpo"] = {
            "draft_score": draft.score,
            "drafts_mean": draft.mean,
            "draft_fits": float(fits),
        }
        return output

    async def _best_draft(self, sampling_params: dict[str, Any], priority: int, row: dict[str, Any]) -> Draft:
        single = super().run
        outputs = await asyncio.gather(
            *(single(dict(sampling_params), priority, **row) for _ in range(self._options.drafts))
        )
        texts = [self._tokenizer.decode(output.response_ids, skip_special_tokens=True) for output in outputs]
        scores = await asyncio.gather(*(self._score(text, row) for text in texts))
        best = max(range(len(texts)), key=scores.__getitem__)
        return Draft(texts[best], scores[best], sum(scores) / len(scores))

    async def _score(self, text: str, row: dict[str, Any]) -> float:
        def call() -> Any:
            return reward_function(self.config)(
                data_source=row["data_source"],
                solution_str=text,
                ground_truth=row["reward_model"]["ground_truth"],
                extra_info=reward_input(
                    row.get("extra_info"), row["raw_prompt"], thinking_opened=self._thinking_opened
                ),
            )

        found = await asyncio.get_running_loop().run_in_executor(None, call)
        found = await found if inspect.isawaitable(found) else found
        return float(found["score"] if isinstance(found, dict) else found)

    @staticmethod
    def run_checks(view: Any) -> list[Finding]:
        """Check the options of drafts, and that a prompt has room for one.

        Args:
            view: the run, whose settings have passed the checks of single values; ``view[key]`` is the value of a dotted key.
        """
        if invalid := findings_of(lambda: DraftOptions.of(view[_OPTIONS]), _OPTIONS):
            return invalid
        prompts, workers = view["data.train_batch_size"], view[f"{ROLLOUT}.agent.num_workers"]
        if not view["trainer.use_v1"] and prompts % workers:
            message = (
                f"trainer.use_v1=false: with data.train_batch_size={prompts}, which is not a multiple of "
                f"{ROLLOUT}.agent.num_workers={workers}, two workers would share a group, each with drafts of its own; set "
                f"trainer.use_v1=true, or data.train_batch_size to a multiple of {workers}"
            )
            return [Finding.error("trainer.use_v1", message)]
        room, longest = view["data.max_prompt_length"], view["data.max_response_length"]
        if room >= longest:
            return []
        message = (
            f"data.max_prompt_length={room}: does not hold a prompt and a draft of data.max_response_length={longest} tokens, so "
            "such drafts are left out; raise data.max_prompt_length"
        )
        return [Finding.warning("data.max_prompt_length", message)]

    def _with_draft(self, messages: Sequence[Mapping[str, Any]], draft: str) -> list[dict[str, Any]]:
        *before, last = (dict(message) for message in messages)
        if self._options.system and before and before[0]["role"] == "system":
            before[0]["content"] += f"\n\n{self._options.system}"
        elif self._options.system:
            before.insert(0, {"role": "system", "content": self._options.system})
        return [*before, last | {"content": last["content"] + self._options.request.replace("{draft}", draft)}]

    def _length(self, messages: Sequence[Mapping[str, Any]]) -> int:
        return len(
            self._tokenizer.apply_chat_template(
                messages,
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
                **self.apply_chat_template_kwargs,
            )
        )
