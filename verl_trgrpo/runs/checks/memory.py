"""A rough account of one GPU's memory: enough to see that a recipe fits, or by how much it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.problems import Finding, warning
from verl_trgrpo.runs.checks.batches import BatchArithmetic
from verl_trgrpo.runs.checks.model_facts import ModelFacts

_GIB = 2**30
_DEFAULT_GPU_GIB = 80.0

# GiB that vLLM keeps for its own activations and CUDA graphs, before the KV cache; a guess from experience.
_ENGINE_WORKSPACE = 2.0

# Bytes of a logit: bfloat16 value and gradient, and a float32 copy for the log-softmax.
_LOGIT_BYTES = 8

FORMULA = """\
P parameters, S GPUs that share them, T tokens of a micro-batch, L layers, h width, i width of the MLP, V vocabulary:
weights 4P/S, gradients 4P/S, Adam 8P/S, reference 4P/S (less where offloaded, in bfloat16 or with LoRA);
activations 2T (L h + 2 (6 h + 3 i)) with gradient checkpointing, else 2T L (6 h + 3 i); logits 8 T V;
two gathered layers in bfloat16; rollout: gpu_memory_utilization x GPU, of which 2P/TP weights, 2 GiB workspace, the rest KV
cache of 4 L x KV heads x head size bytes per token. Fragmentation and CUDA contexts (2 to 5 GiB) are not counted."""


@dataclass(frozen=True)
class MemoryEstimate:
    """GiB on one GPU, by phase; ``kv_tokens`` is a number of tokens.

    weights, gradients, optimizer, reference, gathered, activations and logits are those of an update; ``resident`` is what
    the trainer leaves on the GPU while vLLM, which takes ``engine``, generates.
    """

    gpu: float
    weights: float
    gradients: float
    optimizer: float
    reference: float
    gathered: float
    activations: float
    logits: float
    resident: float
    engine: float
    kv_cache: float
    kv_tokens: int

    @property
    def update(self) -> float:
        """Peak of an update."""
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.reference
            + self.gathered
            + self.activations
            + self.logits
        )

    @property
    def rollout(self) -> float:
        """Peak of generation."""
        return self.resident + self.engine


def estimate_memory(config: DictConfig, facts: ModelFacts, batches: BatchArithmetic) -> MemoryEstimate | None:
    """The account for FSDP; None for other engines, which cut a model in ways that are not modelled here."""
    actor, ref, rollout = (config.actor_rollout_ref[name] for name in ("actor", "ref", "rollout"))
    if actor.strategy not in ("fsdp", "fsdp2"):
        return None
    engine = actor.fsdp_config
    gpu = float(OmegaConf.select(config, "recipe.gpu_gib") or _DEFAULT_GPU_GIB)
    shards = engine.fsdp_size if engine.fsdp_size > 0 else batches.gpus
    share = facts.parameters / shards
    trained = _trained_parameters(config, facts) / shards
    on_gpu = 0.0 if engine.offload_policy else 1.0
    weights = on_gpu * share * _bytes(engine) / _GIB
    optimizer = on_gpu * 2 * trained * _bytes(engine) / _GIB
    has_reference = actor.use_kl_loss or config.algorithm.use_kl_in_reward
    # With LoRA the reference is the same model without the adapter.
    own_reference = has_reference and not _lora_rank(config) and not ref.fsdp_config.param_offload
    reference = share * _bytes(ref.fsdp_config) / _GIB if own_reference else 0.0
    resident = reference
    resident += 0.0 if engine.param_offload else weights
    resident += 0.0 if engine.optimizer_offload else optimizer
    tensor_parallel = rollout.tensor_model_parallel_size
    taken = rollout.gpu_memory_utilization * gpu
    kv_cache = taken - 2 * facts.parameters / tensor_parallel / _GIB - _ENGINE_WORKSPACE
    kv_heads = max(1, facts.num_key_value_heads // tensor_parallel)
    kv_bytes = 4 * facts.num_hidden_layers * kv_heads * facts.head_size
    fused = config.actor_rollout_ref.model.use_fused_kernels
    return MemoryEstimate(
        gpu=gpu,
        weights=weights,
        gradients=on_gpu * trained * _bytes(engine) / _GIB,
        optimizer=optimizer,
        reference=reference,
        gathered=2 * 2 * facts.layer_parameters / _GIB,
        activations=_activations(config, facts, batches.tokens_per_micro_batch),
        logits=0.0 if fused else _LOGIT_BYTES * batches.tokens_per_micro_batch * facts.vocab_size / _GIB,
        resident=resident,
        engine=taken,
        kv_cache=kv_cache,
        kv_tokens=max(0, int(kv_cache * _GIB / kv_bytes)),
    )


def memory_findings(config: DictConfig, estimate: MemoryEstimate) -> list[Finding]:
    """Warnings, not errors: it is an estimate."""
    findings = []
    if estimate.update > estimate.gpu:
        findings.append(
            warning(
                "actor_rollout_ref.actor",
                f"an update takes about {estimate.update:.0f} GiB of a GPU's {estimate.gpu:.0f} ({estimate.logits:.0f} of them "
                "logits); lower ppo_max_token_len_per_gpu or ppo_micro_batch_size_per_gpu, offload, or use more GPUs",
            )
        )
    if estimate.rollout > estimate.gpu:
        findings.append(
            warning(
                "actor_rollout_ref.rollout.gpu_memory_utilization",
                f"vLLM takes {estimate.engine:.0f} GiB and the trainer leaves {estimate.resident:.0f} on a GPU of "
                f"{estimate.gpu:.0f}; lower gpu_memory_utilization, or set fsdp_config.param_offload and optimizer_offload",
            )
        )
    longest = config.data.max_prompt_length + config.data.max_response_length
    if estimate.kv_tokens < longest:
        findings.append(
            warning(
                "actor_rollout_ref.rollout.gpu_memory_utilization",
                f"the KV cache holds about {estimate.kv_tokens} tokens, less than one sequence of {longest}; raise "
                "gpu_memory_utilization or tensor_model_parallel_size",
            )
        )
    return findings


def _activations(config: DictConfig, facts: ModelFacts, tokens: int) -> float:
    layer = 6 * facts.hidden_size + 3 * facts.intermediate_size
    if config.actor_rollout_ref.model.enable_gradient_checkpointing:
        per_token = facts.num_hidden_layers * facts.hidden_size + 2 * layer
    else:
        per_token = facts.num_hidden_layers * layer
    return 2 * tokens * per_token / _GIB


def _bytes(engine: Any) -> int:
    """Bytes of a stored parameter; without a choice veRL trains in float32."""
    return 2 if str(engine.model_dtype) in ("bf16", "bfloat16", "fp16", "float16") else 4


def _lora_rank(config: DictConfig) -> int:
    model = config.actor_rollout_ref.model
    return OmegaConf.select(model, "lora.rank") or model.get("lora_rank", 0) or 0


def _trained_parameters(config: DictConfig, facts: ModelFacts) -> int:
    """All parameters, or those of the adapters on every linear layer."""
    rank = _lora_rank(config)
    if not rank:
        return facts.parameters
    heads = facts.num_attention_heads * facts.head_size
    kv = facts.num_key_value_heads * facts.head_size
    inputs_and_outputs = 2 * (facts.hidden_size + heads) + 2 * (facts.hidden_size + kv)
    inputs_and_outputs += 3 * (facts.hidden_size + facts.intermediate_size)
    return facts.num_hidden_layers * rank * inputs_and_outputs
