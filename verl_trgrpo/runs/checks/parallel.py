"""Check what parallel sizes need of the model, and what a run needs of the machine that trains it."""

from __future__ import annotations

import importlib.util

from omegaconf import DictConfig

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.runs.checks.batches import ACTOR, ROLLOUT, sequence_parallel
from verl_trgrpo.runs.checks.files import decoder_value, model_content
from verl_trgrpo.runs.compose import loggers_of

# Packages of the trackers that veRL imports only when training starts.
_PACKAGES = {
    "wandb": "wandb", "mlflow": "mlflow", "swanlab": "swanlab", "tensorboard": "tensorboard", "clearml": "clearml",
    "trackio": "trackio", "vemlp_wandb": "volcengine_ml_platform",
}  # fmt: skip


def parallel_findings(config: DictConfig) -> list[Finding]:
    """Check that the attention heads of a local model can be split over the GPUs that share it or its sequences."""
    model = model_content(config)
    heads, groups = (decoder_value(model, f"num_{kind}_heads") for kind in ("attention", "key_value"))
    if not isinstance(heads, int) or config.actor_rollout_ref.actor.strategy == "megatron":
        return []
    groups = groups if isinstance(groups, int) else heads
    sizes = (
        (f"{ROLLOUT}.tensor_model_parallel_size", config.actor_rollout_ref.rollout.tensor_model_parallel_size),
        (f"{ACTOR}.ulysses_sequence_parallel_size", sequence_parallel(config)),
    )
    findings = []
    for key, size in sizes:
        if heads % size:
            message = f"{key}={size}: does not divide the model's {heads} attention heads; choose a divisor"
            findings.append(Finding.error(key, message))
        elif groups % size and size % groups:
            message = f"{key}={size}: neither divides the model's {groups} key-value heads nor is a multiple; change it"
            findings.append(Finding.error(key, message))
    return findings


def machine_findings(config: DictConfig) -> list[Finding]:
    """Return what depends on the machine that trains, and is "not checked" on another one."""
    return [
        Finding.not_checked("trainer.logger", f"trainer.logger={name}: {package} is not installed on this machine")
        for name, package in missing_trackers(config).items()
    ]


def missing_trackers(config: DictConfig) -> dict[str, str]:
    """Return the trackers of a run whose packages are not installed here, with the names of the packages."""
    packages = {name: _PACKAGES[name] for name in loggers_of(config) if name in _PACKAGES}
    return {name: package for name, package in packages.items() if importlib.util.find_spec(package) is None}
