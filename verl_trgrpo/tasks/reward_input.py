"""What a reward gets beside the response and the ground truth: the row's extra_info, and what the rollout alone knows."""

from collections.abc import Mapping
from typing import Any

from verl_trgrpo.data.rows import CUT_OFF, PROMPT, RESERVED_KEYS, THINKING_OPENED


class RewardInput(dict[str, Any]):
    """The `extra_info` of a reward, as `reward_input` alone makes it.

    Its type is what `compute_score` trusts: a row, which holds plain dictionaries, cannot name it.
    """


def reward_input(
    extra_info: Any,
    prompt: Any,
    *,
    from_loop: Mapping[str, Any] | None = None,
    thinking_opened: bool = False,
    cut_off: bool = False,
) -> RewardInput:
    """Return the `extra_info` of a reward: a copy of the row's, with what else the response is judged by.

    Args:
        extra_info: of the row, without what stands under the `RESERVED_KEYS`; anything but a mapping counts as empty.
        prompt: messages of the prompt, or a string; under ``raw_prompt``.
        from_loop: what the agent loop wrote; it replaces the row's.
        thinking_opened: the rendered prompt ends in ``<think>`` (see `opens_thinking`).
        cut_off: the response ended at a length limit.
    """
    row = extra_info if isinstance(extra_info, Mapping) else {}
    own = {key: value for key, value in row.items() if key not in RESERVED_KEYS}
    judged_by = {PROMPT: prompt, THINKING_OPENED: thinking_opened, CUT_OFF: cut_off}
    return RewardInput({**own, **(from_loop or {}), **judged_by})
