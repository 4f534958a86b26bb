"""Construct what veRL's FSDP engine builds beside the weights: number types, optimizer, schedule, adapter, wrapping."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.checks.construct.attempt import attempt, refused_options, with_options
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import did_you_mean
from verl_trgrpo.runs.keys import MODEL, selected

# A schedule needs the steps of the run, which veRL counts when it has read the data.
_STEPS = 1000


def engine_findings(
    config: DictConfig, section: str, settings: Any, model: DictConfig, is_here: bool, engine: str
) -> list[Finding]:
    """Let veRL's FSDP engine read its number types, and build its optimizer, its schedule and the adapter.

    Args:
        config: of the run.
        section: dotted key of the actor, the reference or the critic.
        settings: what veRL's worker makes of that section, as a section.
        model: the section of the model, whose files are on this machine.
        is_here: False if another model is used in place of the run's own.
        engine: name of the section of the engine below `section`.
    """
    from verl.utils.torch_dtypes import PrecisionType

    findings, key = list[Finding](), f"{section}.{engine}"
    for name in ("model_dtype", *(f"mixed_precision.{part}_dtype" for part in ("param", "reduce", "buffer"))):
        if (value := selected(config, f"{key}.{name}")) is not None:
            build = lambda value=value: PrecisionType.to_dtype(value)  # noqa: E731
            findings += attempt(f"{key}.{name}", value, build, "veRL", "set fp32, bf16 or fp16")
    if selected(config, f"{section}.optim"):
        findings += _optimizer_findings(f"{section}.optim", selected(config, f"{section}.optim"))
    return findings or [*_module_findings(config, section, settings, model, is_here, engine)]


def _optimizer_findings(key: str, section: DictConfig) -> list[Finding]:
    import torch
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config.optimizer import build_optimizer
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    if not (section.get("total_training_steps") or 0) > 0:
        section = section.copy()
        OmegaConf.update(section, "total_training_steps", _STEPS)

    def build() -> None:
        engine = object.__new__(FSDPEngine)
        engine.optimizer_config, engine.rank = omega_conf_to_dataclass(section), 1
        optimizer = build_optimizer([torch.nn.Parameter(torch.zeros(1))], engine.optimizer_config)
        engine._build_lr_scheduler(optimizer)

    return attempt(key, selected(section, "optimizer"), build, "veRL's optimizer", f"correct the settings of {key}")


def _module_findings(
    config: DictConfig, section: str, settings: Any, model: DictConfig, is_here: bool, engine: str
) -> Iterator[Finding]:
    """Yield what the engine refuses to do with the modules of the model, which have no weights here."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    key = MODEL if section != "critic" else "critic.model"
    fsdp = object.__new__(FSDPEngine)
    # It imports the model's external_lib, which may register an attention.
    fsdp.model_config = omega_conf_to_dataclass(model)
    fsdp.engine_config = omega_conf_to_dataclass(selected(settings, engine))
    fsdp._qat_config = getattr(fsdp.engine_config, "qat", None)
    attention = selected(model, "override_config.attn_implementation")
    known = [*ALL_ATTENTION_FUNCTIONS.valid_keys(), "eager"]
    if isinstance(attention, str) and attention not in known and "/" not in attention:  # else a kernel of the hub
        where = f"{key}.override_config.attn_implementation"
        fix = did_you_mean(attention, known)
        yield Finding.error(where, f"{where}={attention}: transformers has no such attention; {fix}")
        return
    if is_here and (refused := _override_findings(key, model)):
        yield from refused
        return
    for where, build, fix in _tried(fsdp, key, f"{section}.{engine}"):
        value = selected(config, where)
        value = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        for found in attempt(where, value, build, "veRL's FSDP engine", fix):
            of_model = not is_here and ("base model" in found.message or "layer class" in found.message)
            yield replace(found, level=Level.NOT_CHECKED) if of_model else found


def _override_findings(key: str, model: DictConfig) -> list[Finding]:
    """Return the options of a model's configuration of which its modules cannot be made; weights are not loaded."""
    import torch
    from transformers import AutoModelForCausalLM
    from verl.utils.config import omega_conf_to_dataclass

    given = {str(name): value for name, value in (selected(model, "override_config") or {}).items()}

    def build(some: Collection[str]) -> None:
        section: Any = omega_conf_to_dataclass(with_options(model, "override_config", some))
        with torch.device("meta"):
            AutoModelForCausalLM.from_config(section.hf_config, attn_implementation="eager")

    return refused_options(f"{key}.override_config", given, build, "transformers")


def _tried(fsdp: Any, model: str, engine: str) -> Iterator[tuple[str, Callable[[], object], str]]:
    """Yield what an engine does with the modules of a model: the key that asks for it, the call, and what to do if it fails."""
    import torch

    def module() -> Any:
        from transformers import AutoModelForCausalLM

        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(fsdp.model_config.hf_config, attn_implementation="eager")

    def adapt() -> None:
        with torch.device("meta"):
            fsdp._build_lora_module(module())

    def wrap() -> None:
        from verl.utils.fsdp_utils import get_fsdp_wrap_policy

        get_fsdp_wrap_policy(module(), config=policy, is_lora=fsdp.model_config.lora_rank > 0)

    def fuse() -> None:
        from verl.models.transformers.monkey_patch import patch_forward_with_backends

        backend: Any = (fsdp.model_config.fused_kernel_options or {}).get("impl_backend")
        patch_forward_with_backends(module(), use_fused_kernels=True, fused_kernels_backend=backend)

    policy = fsdp.engine_config.wrap_policy
    if fsdp.model_config.lora_rank:
        yield f"{model}.lora_rank", adapt, f"correct the settings of the adapter in {model}"
    if policy and (policy.get("transformer_layer_cls_to_wrap") or policy.get("min_num_params")):
        yield f"{engine}.wrap_policy", wrap, "name classes of the model's layers"
    if fsdp.model_config.use_fused_kernels:
        yield f"{model}.fused_kernel_options.impl_backend", fuse, "set torch or triton"
    if fsdp._qat_config and fsdp._qat_config.enable:
        yield f"{engine}.qat", lambda: fsdp._apply_qat(module()), f"correct {engine}.qat"
