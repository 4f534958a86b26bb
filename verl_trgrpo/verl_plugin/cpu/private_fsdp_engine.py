"""Register veRL's FSDP2 engine for CPUs; workers import this module through ``actor_rollout_ref.model.external_lib``.

That key is veRL's own way to run code in a worker before its engine is built; other runs do not import this module.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any

import torch
from verl.utils import tensordict_utils
from verl.workers import engine_workers
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead

import verl_trgrpo.verl_plugin.cpu.attention  # noqa: F401  (so that a configuration can name it)
from verl_trgrpo.verl_plugin.cpu import chosen


class CPUFSDPEngineWithLMHead(FSDPEngineWithLMHead):
    """Adapt the FSDP2 language-model engine to small machines.

    Forward-only (reference) models have no offload policy: it pins host memory, which needs an accelerator.

    Of packed sequences (``use_remove_padding``) the output layer computes only the positions that predict response tokens.
    Log-probabilities and entropies of the others, which are never read, are 0.
    """

    def _build_fsdp_module(self, module: Any) -> Any:
        # veRL writes override_config into the model's configuration, which checkpoints keep: it would name an attention that
        # exists only here, and no other program could load them. The model uses it already.
        vars(module.config).pop("attn_implementation", None)
        config = self.engine_config
        self.engine_config = dataclasses.replace(config, forward_only=False, offload_policy=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = config

    def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        inputs, output_args = super().prepare_model_inputs(micro_batch)
        if self._takes_responses_alone(micro_batch):
            kept = output_args["kept"] = predicting_positions(micro_batch["input_ids"], micro_batch["responses"])
            inputs["logits_to_keep"] = kept
            for name in ("input_ids_rmpad_rolled", "temperature_rmpad"):
                output_args[name] = output_args[name][kept]
            output_args["pad_size"] = 0  # padding that veRL may have appended is not among them
        return inputs, output_args

    def _takes_responses_alone(self, micro_batch: Any) -> bool:
        def asks(key: str, default: bool = False) -> bool:
            return bool(tensordict_utils.get_non_tensor_data(data=micro_batch, key=key, default=default))

        other = self.use_ulysses_sp or asks("use_fused_kernels") or asks("distillation_use_topk")
        nested = "responses" in micro_batch and micro_batch["responses"].is_nested  # only in veRL's v1 trainer
        return asks("use_remove_padding", True) and nested and not other

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: Any, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        if "kept" not in output_args:
            return super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
        whole, shorter = micro_batch["input_ids"], micro_batch.copy()
        shorter["input_ids"] = micro_batch["responses"]  # read for its lengths
        found = super().prepare_model_outputs(output, output_args, shorter, logits_processor_func)
        return {name: _spread(value, output_args["kept"], whole) for name, value in found.items()}


def predicting_positions(input_ids: Any, responses: Any) -> torch.Tensor:
    """Return the positions in packed sequences whose next token belongs to a response: (response tokens,), ascending.

    Args:
        input_ids: (N, prompt and response), nested.
        responses: (N, response), nested; each has a prompt of at least one token.
    """
    ends, lengths = input_ids.offsets()[1:], responses.offsets().diff()
    return torch.cat(
        [torch.arange(end - n - 1, end - 1) for end, n in zip(ends.tolist(), lengths.tolist(), strict=True)]
    )


def _spread(values: Any, kept: torch.Tensor, whole: Any) -> torch.Tensor:
    """Spread the values of responses, nested, to their places in the packed sequences `whole`, with 0 elsewhere."""
    flat = values.values()
    spread = flat.new_zeros(whole.values().shape[0]).index_put((kept,), flat)
    return torch.nested.nested_tensor_from_jagged(spread, whole.offsets())


def _install() -> None:
    if not chosen():
        return
    # Ray gives each worker one thread. The ranks of a node train while everything else waits, so they share its cores.
    ranks = int(os.environ.get("RAY_LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))
    if "cpu" in EngineRegistry._engines["language_model"]["fsdp2"]:
        return
    EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")(CPUFSDPEngineWithLMHead)
    # veRL asks torch for "cpu:gloo,<device>:<backend>", a duplicate when the device is the CPU. Remove when veRL composes
    # the string without duplicates, or lets a platform name it.
    engine_workers.initialize_global_process_group_ray = functools.partial(
        engine_workers.initialize_global_process_group_ray, backend="cpu:gloo"
    )


_install()
