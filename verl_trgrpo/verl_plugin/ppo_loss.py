"""The one veRL function that is adapted in every run: ``verl.workers.utils.losses.ppo_loss`` is wrapped, not copied.

Why: (1) veRL 0.9 has no registry of KL kinds, and the policy loss never sees ``ref_log_prob``, so the weighted kinds
``kl: scaled | literal`` have no extension point. (2) veRL averages a policy loss's metrics over micro-batches with equal
weights, whatever their number of tokens; there is no way to return them with their own aggregation.

The wrapper calls the original function and leaves everything else to it. With ``kl: plain`` and another policy loss it
changes nothing.

Remove (1) when veRL lets a plugin register a KL kind that sees token weights, and (2) when ``Metric.from_dict`` keeps a
``Metric`` that a policy loss returns.
"""

from __future__ import annotations

import copy
import functools
import sys
from typing import Any

import torch
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils import losses

from verl_trgrpo.core.objective import PooledStatistic, TokenWeighting, aggregate_loss, token_weights, weighted_kl

_MARK = "has_token_weights"


class PooledMetric(Metric):
    """A veRL metric whose micro-batches are pooled by their sums instead of averaged.

    Within a rank the result is exact. veRL then averages over data-parallel ranks, which it keeps balanced.
    """

    def __init__(self, value: PooledStatistic | None = None) -> None:
        self.parts: list[PooledStatistic] = [] if value is None else [value]
        self.aggregation = AggregationType.MEAN

    @property  # what veRL's aggregation over ranks reads
    def values(self) -> list[float]:  # type: ignore[override]
        return [float(PooledStatistic.pool(self.parts))]

    def append(self, value: Any) -> None:
        self.extend(value if isinstance(value, PooledMetric) else [value])

    def extend(self, values: Any) -> None:
        self.parts.extend(values.parts if isinstance(values, PooledMetric) else values)

    def init_list(self) -> PooledMetric:
        return PooledMetric()


def install() -> None:
    """Wrap veRL's ``ppo_loss`` once, also in modules that have imported it by name already."""
    original = losses.ppo_loss
    if getattr(original, _MARK, False):
        return
    wrapped = _wrap(original)
    setattr(wrapped, _MARK, True)
    for name in ("verl.workers.utils.losses", "verl.workers.engine_workers", "verl.trainer.distillation.losses"):
        module = sys.modules.get(name)
        if module is not None and getattr(module, "ppo_loss", None) is original:
            module.ppo_loss = wrapped  # type: ignore[attr-defined]


def _wrap(ppo_loss: Any) -> Any:
    @functools.wraps(ppo_loss)
    def ppo_loss_with_token_weights(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        regulation = config.policy_loss
        if not isinstance(regulation, TokenWeighting) or regulation.kl == "plain":
            loss, metrics = ppo_loss(config, model_output, data, dp_group)
            return loss, _pooled(metrics)
        check_kl(config, regulation)
        without_kl = copy.copy(config)  # shallow: the counters of the global batch stay shared
        object.__setattr__(without_kl, "use_kl_loss", False)
        loss, metrics = ppo_loss(without_kl, model_output, data, dp_group)
        kl_loss = _weighted_kl_loss(config, model_output, data)
        metrics["kl_loss"] = Metric(value=kl_loss, aggregation=AggregationType.SUM)
        metrics["kl_coef"] = config.kl_loss_coef
        return loss + kl_loss * config.kl_loss_coef, _pooled(metrics)

    return ppo_loss_with_token_weights


def check_kl(config: Any, regulation: TokenWeighting) -> None:
    """Refuse weighted KL kinds that would have no effect or contradict the actor's own KL options.

    Args:
        config: veRL's ``ActorConfig``.
        regulation: its policy loss.

    Raises:
        ValueError: with value, reason and remedy.
    """
    if regulation.kl == "plain":
        return
    if not config.use_kl_loss:
        raise ValueError(
            f"policy_loss.kl={regulation.kl!r} needs actor.use_kl_loss=True; without a KL loss it would have no effect"
        )
    if config.kl_loss_type not in ("low_var_kl", "k3"):
        raise ValueError(
            f"policy_loss.kl={regulation.kl!r} is built on the k3 estimator but actor.kl_loss_type="
            f"{config.kl_loss_type!r}; set it to low_var_kl, or policy_loss.kl=plain"
        )


def _weighted_kl_loss(config: Any, model_output: Any, data: Any) -> torch.Tensor:
    """The aggregated weighted KL of one micro-batch, shaped and counted as the host's own KL loss."""
    log_prob = losses.no_padding_2_padding(model_output["log_probs"], data)
    padded = data.select("response_mask", "old_log_probs", "ref_log_prob").to_padded_tensor()
    response_mask = padded["response_mask"].bool()
    weights = token_weights(log_prob, padded["old_log_probs"], response_mask, config.policy_loss)
    penalty = weighted_kl(log_prob, padded["ref_log_prob"], weights, response_mask, config.policy_loss.kl)
    return aggregate_loss(penalty, response_mask, config.loss_agg_mode, **config.global_batch_info)


def _pooled(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics with every poolable figure in a :class:`PooledMetric`."""
    for name, metric in metrics.items():
        values = metric.values if isinstance(metric, Metric) else []
        if len(values) == 1 and isinstance(values[0], PooledStatistic):
            metrics[name] = PooledMetric(values[0])
    return metrics
