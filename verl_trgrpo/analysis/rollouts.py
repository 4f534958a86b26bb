"""Sample rollouts of a checkpoint, with group-relative advantages, and run forward passes over them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from omegaconf import DictConfig, OmegaConf
from transformers import DynamicCache

from verl_trgrpo.common.progress import Progress
from verl_trgrpo.common.text import first_line
from verl_trgrpo.core import group_relative_advantages
from verl_trgrpo.data.prompts import SINGLE_TURN, RolloutPrompts, prompt_settings
from verl_trgrpo.data.rows import Row
from verl_trgrpo.evaluation.evaluate import load_evaluable_rows
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.answer_form import reward_input
from verl_trgrpo.tasks.search_qa.search_options import SEARCH_AGENT
from verl_trgrpo.verl_plugin.cpu.attention import GROUPED

if TYPE_CHECKING:
    from verl_trgrpo.analysis.analyze import AnalyzeOptions

# A step takes about as long for 64 responses as for 8: what takes time is reading the weights.
_RESPONSES_AT_ONCE = 64

Item = TypeVar("Item")


class Rollout(NamedTuple):
    """One response: ids of its prompt (P,) and of its own tokens (T,), and its advantage."""

    prompt: torch.Tensor
    response: torch.Tensor
    advantage: float


def load_policy(path: str | Path, device: str, config: DictConfig | None = None) -> tuple[RolloutPrompts, Any]:
    """Load a Hugging Face directory: what makes token ids of prompts, and the model, in float32, without dropout.

    Args:
        path: of the directory.
        device: of the model.
        config: of the run that made the model, whose settings decide its prompts; None for the tokenizer's own template.

    Raises:
        ValueError: the device does not exist, or tokenizer or model cannot be loaded, or it has no end token.
    """
    from transformers import AutoModelForCausalLM, GenerationConfig

    prompts = RolloutPrompts(prompt_settings(config or OmegaConf.create(), str(path)))
    tokenizer = prompts.tokenizer
    try:
        # Fused attention kernels have no rule for batched backward passes.
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation=GROUPED)
        # transformers wraps `to` in a way that its annotation does not survive.
        model = model.to(device).eval()  # type: ignore[arg-type]
    except (OSError, RuntimeError, AssertionError) as error:
        raise ValueError(f"cannot load {path} on device {device!r}: {first_line(error)}") from error
    ends = model.generation_config.eos_token_id if model.generation_config else None
    if ends is None and (ends := tokenizer.eos_token_id) is None:
        raise ValueError(f"{path} has no end token, so responses would not end; set eos_token_id in its config.json")
    # None of the model's other settings: a repetition penalty, say, would sample from another policy than the one measured.
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
    return prompts, model


@torch.no_grad()
def sample_rollouts(prompts: RolloutPrompts, model: Any, options: AnalyzeOptions, progress: Progress) -> list[Rollout]:
    """Sample responses to prompts of a data file, score them, and compare them within their groups.

    Returns:
        prompts times samples rollouts, group after group.

    Raises:
        ValueError: the file cannot be read, rows cannot be scored or need searches, or rewards are equal in every group:
            every figure of a gradient would be 0 and look like a measurement.
    """
    rows = load_prompts(options, options.prompts, prompts.default_agent)
    rollouts = sample_responses(prompts, model, rows, options, f"rollouts/{options.seed}", progress)
    if not options.only_tokens and not any(rollout.advantage for rollout in rollouts):
        raise ValueError(
            f"{model.name_or_path}: all {options.samples} responses to each of {len(rollouts) // options.samples} prompts got "
            "equal rewards, so no token has a gradient; use more prompts or samples, or another checkpoint, or view them with "
            "--only-tokens"
        )
    return rollouts


def load_prompts(options: AnalyzeOptions, limit: int | None, default_agent: str = SINGLE_TURN) -> list[Row]:
    """Return at most `limit` rows of the data file, drawn with the seed; all without a limit.

    Rows without an agent_name have the default.

    Raises:
        ValueError: the file cannot be read, or rows cannot be scored or need searches.
    """
    (rows,) = load_evaluable_rows([options.data], limit, options.seed, default_agent=default_agent)
    if any(row.agent_name == SEARCH_AGENT for row in rows):
        raise ValueError(
            f"{options.data} has rows with agent_name {SEARCH_AGENT}, whose responses search; here responses have one turn. "
            "Give rows without searches, or measure accuracy with verl-trgrpo eval --search"
        )
    return rows


@torch.no_grad()
def sample_responses(
    prompts: RolloutPrompts,
    model: Any,
    rows: Sequence[Row],
    options: AnalyzeOptions,
    seed: str,
    progress: Progress,
) -> list[Rollout]:
    """Sample ``options.samples`` responses to each row, group after group; `seed` is that of sampling."""
    settings = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": options.max_tokens}
    ends = model.generation_config.eos_token_id
    ends = torch.tensor(ends if isinstance(ends, list) else [ends], device=model.device)
    rollouts: list[Rollout] = []
    devices = [model.device] if model.device.type == "cuda" else []
    parts = chunks(rows, max(1, _RESPONSES_AT_ONCE // options.samples))
    with torch.random.fork_rng(devices):
        torch.manual_seed(random.Random(seed).getrandbits(63))
        for part in progress(parts, len(parts), "sampling"):
            begun = [prompts.of({"prompt": row.messages, "agent_name": row.agent_name}) for row in part]
            starts = [torch.tensor(prompt.token_ids) for prompt in begun]
            ids = _left_padded(starts, int(ends[0])).to(model.device)
            mask = _left_padded([torch.ones_like(one) for one in starts], 0).to(model.device)
            cache = _prompt_cache(model, ids, mask, options.samples)
            ids, mask = (each.repeat_interleave(options.samples, 0) for each in (ids, mask))
            output = model.generate(ids, attention_mask=mask, past_key_values=cache, **settings)[:, ids.shape[1] :]
            for row, start, group in zip(part, starts, output.split(options.samples), strict=True):
                responses = [_without_padding(response, ends) for response in group]
                rollouts += _group(row, start.to(model.device), responses, prompts)
    return rollouts


def _prompt_cache(model: Any, ids: torch.Tensor, mask: torch.Tensor, samples: int) -> DynamicCache | None:
    """Read each prompt but for its last token once for all its responses; None for models without keys and values."""
    if model._is_stateful or ids.shape[1] < 2:
        return None
    cache, positions = DynamicCache(), (mask.cumsum(-1) - 1).clamp(min=0)
    model(
        ids[:, :-1],
        attention_mask=mask[:, :-1],
        position_ids=positions[:, :-1],
        past_key_values=cache,
        logits_to_keep=1,
    )
    cache.batch_repeat_interleave(samples)
    return cache


def _left_padded(sequences: Sequence[torch.Tensor], value: int) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([*sequences], batch_first=True, padding_value=value, padding_side="left")


def _group(row: Row, start: torch.Tensor, responses: Sequence[torch.Tensor], prompts: RolloutPrompts) -> list[Rollout]:
    """Score the responses to one prompt, and compare them."""
    texts = prompts.tokenizer.batch_decode(responses, skip_special_tokens=True)
    extra_info = reward_input(row.extra_info, row.messages, thinking_opened=prompts.thinking_opened)
    rewards = [compute_score(row.data_source, text, row.ground_truth, extra_info)["score"] for text in texts]
    given = torch.tensor(rewards)[:, None]
    advantages = group_relative_advantages(given, torch.ones_like(given), [0] * len(rewards))[:, 0].tolist()
    return [Rollout(start, *pair) for pair in zip(responses, advantages, strict=True)]


def _without_padding(response: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return the response up to its first end token, which belongs to it."""
    found = torch.isin(response, ends).nonzero()
    return response[: int(found[0]) + 1] if len(found) else response


def response_logits(model: Any, rollouts: Sequence[Rollout]) -> list[torch.Tensor]:
    """Return the logits that each token of the responses was sampled from.

    Several responses to one prompt share its pass, which is most of the work where prompts are longer than responses.

    Returns:
        (T, vocabulary) for each rollout, with gradient where it is enabled.
    """
    first, *others = (rollout.prompt for rollout in rollouts)
    # Models with a recurrent state have no keys and values of the prompt that responses could share.
    if not others or model._is_stateful or not all(torch.equal(first, other) for other in others):
        return _separate_logits(model, rollouts)
    prompt = DynamicCache()
    begin = model(first[None], past_key_values=prompt, use_cache=True, logits_to_keep=1).logits
    logits = begin.expand(len(rollouts), -1, -1)
    ids = torch.nn.utils.rnn.pad_sequence([rollout.response[:-1] for rollout in rollouts], batch_first=True)
    if ids.shape[1]:
        cache = DynamicCache([
            tuple(part.expand(len(rollouts), -1, -1, -1) for part in (layer.keys, layer.values)) for layer in prompt.layers
        ])  # fmt: skip
        # Padding stands behind a response, where nothing of it attends.
        rest = model(ids, past_key_values=cache, use_cache=True).logits
        logits = torch.cat([logits, rest], dim=1)
    return [row[: len(rollout.response)] for row, rollout in zip(logits, rollouts, strict=True)]


def _separate_logits(model: Any, rollouts: Sequence[Rollout]) -> list[torch.Tensor]:
    """Return the same by one pass over prompts and responses, padded on the right."""
    sequences = [torch.cat([rollout.prompt, rollout.response]) for rollout in rollouts]
    ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(ids) for ids in sequences], batch_first=True)
    logits = model(ids, attention_mask=mask, use_cache=False).logits
    return [
        row[len(rollout.prompt) - 1 : len(rollout.prompt) + len(rollout.response) - 1]
        for row, rollout in zip(logits, rollouts, strict=True)
    ]


def response_log_probs(model: Any, rollouts: Sequence[Rollout], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return the log-probabilities of all tokens of the responses, one after another: (tokens,), with gradient.

    Their gradients by the logits, too, are of `dtype`: they are lost where 1 - p is below its precision, 1e-7 in float32.
    """
    return torch.cat(
        [
            torch.log_softmax(logits, dim=-1, dtype=dtype).gather(-1, rollout.response[:, None])[:, 0]
            for rollout, logits in zip(rollouts, response_logits(model, rollouts), strict=True)
        ]
    )


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Return `items` in pieces of `size`."""
    return [items[i : i + size] for i in range(0, len(items), size)]
