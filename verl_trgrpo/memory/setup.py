"""Read from a composed run what its memory depends on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from omegaconf import OmegaConf

from verl_trgrpo.memory.shape import UnknownModelError
from verl_trgrpo.runs.keys import ACTOR, MODEL, REF, ROLLOUT, ULYSSES

_BYTES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2}
_ENGINE = f"{ACTOR}.fsdp_config"

Get = Callable[[str], Any]
"""Returns the value of a dotted key of the composed configuration, None where it has none."""


@dataclass(frozen=True)
class MicroBatch:
    """How responses are cut for a pass through the model.

    Args:
        packed: tokens at most for each card, None with a fixed number of responses.
        responses: a fixed number of responses.
    """

    packed: int | None
    responses: int | None

    @classmethod
    def of(cls, get: Get, dynamic: str, tokens: str, responses: str) -> MicroBatch:
        """Read the three keys of a pass."""
        return cls(int(get(tokens) or 0), None) if get(dynamic) else cls(None, int(get(responses) or 0))


@dataclass(frozen=True)
class Setup:
    """What the memory of a run depends on.

    The fields have the names of veRL's keys where one key decides. `bytes` and `ref_bytes` are those of a weight; `shards` the
    cards that share a copy of the model, `groups` those that get different responses; `responses` are those of an update for each
    group, `step_responses` those of a step; `entropy` is ``""``, ``shown`` or ``trained`` in the update.
    """

    cards_of_a_node: int
    nodes: int
    shards: int
    fsdp: int
    bytes: int
    ref_bytes: int
    param_offload: bool
    optimizer_offload: bool
    offload_policy: bool
    defers_sync: bool
    checkpointing: bool
    lora_rank: int
    target_modules: Any
    exclude_modules: Any
    layered_summon: bool
    merges: bool
    sequence_parallel: int
    remove_padding: bool
    fused: bool
    flash: bool
    compiled: bool
    entropy: str
    temperature: float
    prompt: int
    response: int
    responses: int
    step_responses: int
    update: MicroBatch
    log_prob: MicroBatch
    ref: MicroBatch
    has_reference: bool
    utilization: float
    tensor_parallel: int
    frees_cache: bool
    eager: bool
    batched_tokens: int
    sequences: int
    engine_length: int | None
    bucket: int
    saves: bool
    saves_hf: bool

    @property
    def cards(self) -> int:
        """Return the cards of all nodes."""
        return self.cards_of_a_node * self.nodes

    @property
    def longest(self) -> int:
        """Return the tokens of the longest prompt and response."""
        return self.prompt + self.response

    @property
    def lora(self) -> dict[str, Any] | None:
        """Return what PEFT's ``LoraConfig`` gets; None without adapters."""
        targets = {"target_modules": self.target_modules, "exclude_modules": self.exclude_modules}
        return {"r": self.lora_rank, "lora_alpha": self.lora_rank, **targets} if self.lora_rank else None

    def tokens(self, batch: MicroBatch, responses: int, mean: float) -> float:
        """Return the tokens of a micro-batch on a card, at most, if prompt and response have `mean` tokens on average.

        Lengths are taken to be exponentially distributed. Without padding removed, veRL pads to the longest of the micro-batch:
        of n lengths it is H(n) times their mean (the n-th harmonic number). With it, the micro-batch with the most tokens
        counts, of all of a step: means of n lengths have the standard deviation ``mean / sqrt(n)``, and the largest of m of
        them lies so many of these above `mean` as the largest of m normal numbers above 0 (Blom's approximation).
        """
        split = self.sequence_parallel
        if batch.packed is not None:
            several = max(1.0, min(responses, batch.packed * split / mean))
        else:
            several = max(1.0, min(responses, batch.responses or 0))
        if not self.remove_padding:
            return several * min(float(self.longest), mean * _harmonic(several))
        if batch.packed is not None:
            return min(float(max(batch.packed, mean / split)), responses * mean / split)
        cuts = self.cards / split * self.step_responses / several
        above = NormalDist().inv_cdf(max(0.5, (cuts - 0.375) / (cuts + 0.25)))
        return several * min(float(self.longest), mean * (1 + above / math.sqrt(several))) / split


def _harmonic(count: float) -> float:
    return math.log(count) + 0.5772 + 0.4228 / count


def setup_of(get: Get, has_reference: bool, needs_critic: bool) -> Setup:
    """Return what the memory of a run depends on.

    Raises:
        UnknownModelError: the run has something that the plan does not know, such as another engine.
    """
    if problem := _unknown(get, needs_critic):
        raise UnknownModelError(problem)
    a_node, nodes = int(get("trainer.n_gpus_per_node")), int(get("trainer.nnodes"))
    cards = a_node * nodes
    asked = int(get(f"{_ENGINE}.fsdp_size") or -1)
    parallel = max(int(get(key) or 1) for key in ULYSSES)
    groups = max(1, cards // parallel)
    several, prompts = int(get(f"{ROLLOUT}.n") or 1), int(get("data.train_batch_size"))
    trained = bool(get(f"{ACTOR}.entropy_coeff"))
    attention = get(f"{MODEL}.override_config.attn_implementation") or "flash_attention_2"
    return Setup(
        cards_of_a_node=a_node,
        nodes=nodes,
        shards=asked if 0 < asked < cards else cards,
        fsdp=2 if get(f"{ACTOR}.strategy") == "fsdp2" else 1,
        bytes=_bytes_of(get, ACTOR),
        ref_bytes=_bytes_of(get, REF),
        param_offload=bool(get(f"{_ENGINE}.param_offload")),
        optimizer_offload=bool(get(f"{_ENGINE}.optimizer_offload")),
        offload_policy=bool(get(f"{_ENGINE}.offload_policy")) and get(f"{ACTOR}.strategy") == "fsdp2",
        defers_sync=bool(get(f"{_ENGINE}.use_no_sync_for_gradient_accumulation")),
        checkpointing=bool(get(f"{MODEL}.enable_gradient_checkpointing")),
        lora_rank=int(get(f"{MODEL}.lora.rank") or 0) or int(get(f"{MODEL}.lora_rank") or 0),
        target_modules=_plain(get(f"{MODEL}.target_modules")),
        exclude_modules=_plain(get(f"{MODEL}.exclude_modules")),
        layered_summon=bool(get(f"{ROLLOUT}.layered_summon")),
        merges=bool(get(f"{MODEL}.lora.merge")),
        sequence_parallel=parallel,
        remove_padding=bool(get(f"{MODEL}.use_remove_padding")),
        fused=bool(get(f"{MODEL}.use_fused_kernels")),
        flash="flash" in str(attention),
        compiled=bool(get(f"{_ENGINE}.use_torch_compile")) and bool(get(f"{MODEL}.use_remove_padding")),
        entropy="trained" if trained else "shown" if get(f"{ACTOR}.calculate_entropy") else "",
        temperature=float(get(f"{ROLLOUT}.temperature") or 0),
        prompt=int(get("data.max_prompt_length")),
        response=int(get("data.max_response_length")),
        responses=max(1, int(get(f"{ACTOR}.ppo_mini_batch_size")) * several // groups),
        step_responses=max(1, prompts * several // groups),
        update=_micro(get, ACTOR, "use_dynamic_bsz", "ppo_max_token_len_per_gpu", "ppo_micro_batch_size_per_gpu"),
        log_prob=_micro(get, ROLLOUT, *_LOG_PROB),
        ref=_micro(get, REF, *_LOG_PROB),
        has_reference=has_reference,
        utilization=float(get(f"{ROLLOUT}.gpu_memory_utilization")),
        tensor_parallel=int(get(f"{ROLLOUT}.tensor_model_parallel_size") or 1)
        * int(get(f"{ROLLOUT}.pipeline_model_parallel_size") or 1),
        frees_cache=bool(get(f"{ROLLOUT}.free_cache_engine")) and get(f"{ROLLOUT}.enable_sleep_mode") is not False,
        eager=bool(get(f"{ROLLOUT}.enforce_eager")),
        batched_tokens=int(get(f"{ROLLOUT}.max_num_batched_tokens") or 8192),
        sequences=int(get(f"{ROLLOUT}.max_num_seqs") or 256),
        engine_length=get(f"{ROLLOUT}.max_model_len"),
        bucket=int(get(f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes") or 0) << 20,
        saves=int(get("trainer.save_freq") or -1) > 0,
        saves_hf="hf_model" in (get(f"{ACTOR}.checkpoint.save_contents") or ()),
    )


_LOG_PROB = ("log_prob_use_dynamic_bsz", "log_prob_max_token_len_per_gpu", "log_prob_micro_batch_size_per_gpu")


def _micro(get: Get, section: str, *names: str) -> MicroBatch:
    return MicroBatch.of(get, *(f"{section}.{name}" for name in names))


def _plain(value: Any) -> Any:
    return list(value) if OmegaConf.is_list(value) else value


def _bytes_of(get: Get, section: str) -> int:
    return _BYTES[str(get(f"{section}.fsdp_config.model_dtype") or "fp32").removeprefix("torch.")]


def _unknown(get: Get, needs_critic: bool) -> str:
    """Return why the memory of a run is not known, "" where it is."""
    engine, strategy = get(f"{ROLLOUT}.name"), get(f"{ACTOR}.strategy")
    mode = get("trainer.v1.trainer_mode") if get("trainer.use_v1") else "sync"
    dtypes = {str(get(f"{part}.fsdp_config.model_dtype") or "fp32").removeprefix("torch.") for part in (ACTOR, REF)}
    update = "ppo_max_token_len_per_gpu" if get(f"{ACTOR}.use_dynamic_bsz") else "ppo_micro_batch_size_per_gpu"
    problems = {
        "the run trains without a card": get("trainer.device") == "cpu",
        f"{ROLLOUT}.name={engine} is not vllm": engine != "vllm",
        f"{ACTOR}.strategy={strategy} is neither fsdp nor fsdp2": strategy not in ("fsdp", "fsdp2"),
        "a critic shares the cards": needs_critic,
        f"trainer.v1.trainer_mode={mode} gives the rollout cards of its own": mode not in (None, "sync"),
        f"{ROLLOUT}.quantization is set": get(f"{ROLLOUT}.quantization"),
        f"{_ENGINE}.model_dtype is one of {', '.join(sorted(dtypes))}": not dtypes <= set(_BYTES),
        f"{ACTOR}.{update} is not set": not get(f"{ACTOR}.{update}"),
        "trainer.n_gpus_per_node is not set": not get("trainer.n_gpus_per_node"),
        "a reward model shares the cards": get("reward.reward_model.enable")
        and not get("reward.reward_model.enable_resource_pool"),
        "a distillation has a teacher on the cards": get("distillation.enabled"),
    }
    return next((reason for reason, found in problems.items() if found), "")
