"""Wrap ``verl.workers.utils.losses.ppo_loss``, the one veRL function that is adapted in every run.

Why: (1) veRL 0.9 has no registry of KL kinds, and the policy loss never sees ``ref_log_prob``, so the weighted kinds
``kl: scaled | literal`` have no extension point. (2) veRL averages a policy loss's metrics over micro-batches with equal
weights, whatever their number of tokens; there is no way to return them with their own aggregation. (3) The entropy of
``model_output`` and other columns of the micro-batch (``ref_log_prob``, and ``success_rate``, which this project's replay
buffer adds) are not handed to the policy loss, so a shaping could not ask for them.

The wrapper calls the original function and leaves everything else to it. It does not change runs with another policy loss
than this project's.

Remove (1) when veRL lets a plugin register a KL kind that sees token weights, (2) when ``Metric.from_dict`` keeps a
``Metric`` that a policy loss returns, and (3) when a policy loss gets the entropy and the micro-batch.
"""

from __future__ import annotations

import copy
import functools
import sys
from typing import Any

import torch
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils import losses

from verl_trgrpo.core import Tokens, TokenStatistic, TokenWeighting, aggregate_loss, token_weights, weighted_kl
from verl_trgrpo.verl_plugin import actor as plugin_actor
from verl_trgrpo.verl_plugin import loss_names

# Inputs of shapings, and the columns of veRL's batch that they are.
_COLUMNS = {"ref_log_prob": "ref_log_prob", "rollout_log_prob": "rollout_log_probs", "responses": "responses"}
_MARK = "has_token_weights"


class TokenMetric(Metric):
    """Hold a veRL metric whose micro-batches are merged by their sums over tokens instead of averaged.

    Within a rank the result is exact. veRL then averages over data-parallel ranks, which it keeps balanced.
    """

    def __init__(self, value: TokenStatistic | None = None) -> None:
        self.parts: list[TokenStatistic] = [] if value is None else [value]
        self.aggregation = AggregationType.MEAN

    @property  # what veRL's aggregation over ranks reads
    def values(self) -> list[float]:  # type: ignore[override]
        return [float(TokenStatistic.merge(self.parts))]

    def append(self, value: Any) -> None:
        self.extend(value if isinstance(value, TokenMetric) else [value])

    def extend(self, values: Any) -> None:
        self.parts.extend(values.parts if isinstance(values, TokenMetric) else values)

    def init_list(self) -> TokenMetric:
        return TokenMetric()

    def __getstate__(self) -> dict[str, Any]:
        # Ranks exchange their metrics: the sums are enough, however many micro-batches there were.
        return {**self.__dict__, "parts": self.parts and [TokenStatistic.merge(self.parts)]}


def install_ppo_loss() -> None:
    """Wrap veRL's ``ppo_loss`` once, also in all modules that have already imported it by name: veRL's, and those that
    ``VERL_USE_EXTERNAL_MODULES`` imports before plugins.
    """
    original = losses.ppo_loss
    if getattr(original, _MARK, False):
        return
    wrapped = _wrap(original)
    setattr(wrapped, _MARK, True)
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})  # not getattr, for which some modules import others
        if names.get("ppo_loss") is original:
            names["ppo_loss"] = wrapped


def _wrap(ppo_loss: Any) -> Any:
    @functools.wraps(ppo_loss)
    def ppo_loss_with_token_weights(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        weighting = config.policy_loss
        if not isinstance(weighting, TokenWeighting):
            loss, metrics = ppo_loss(config, model_output, data, dp_group)
            return loss, _token_metrics(metrics)
        loss_names.weighted_loss_mode(config.policy_loss.loss_mode)
        plugin_actor.check_kl(config)
        entropy = model_output.get("entropy")
        if entropy is not None:
            if not config.entropy_coeff:  # a term of 0 would still be differentiated
                model_output = {**model_output, "entropy": entropy.detach()}
            entropy = losses.no_padding_2_padding(entropy.detach(), data)
        inputs = _token_inputs(plugin_actor.inputs_of(weighting), entropy, data)
        weights_kl = config.use_kl_loss and weighting.kl != "plain"
        own = copy.copy(config)  # shallow: the counters of the global batch stay shared
        object.__setattr__(own, "use_kl_loss", config.use_kl_loss and not weights_kl)
        object.__setattr__(own, plugin_actor.TOKEN_INPUTS, inputs)
        loss, metrics = ppo_loss(own, model_output, data, dp_group)
        if weights_kl:
            kl_loss = _weighted_kl_loss(config, model_output, inputs, data)
            metrics["kl_loss"] = Metric(value=kl_loss, aggregation=AggregationType.SUM)
            metrics["kl_coef"] = config.kl_loss_coef
            loss = loss + kl_loss * config.kl_loss_coef
        return loss, _token_metrics(metrics)

    return ppo_loss_with_token_weights


def _token_inputs(asked: tuple[str, ...], entropy: torch.Tensor | None, data: Any) -> dict[str, torch.Tensor]:
    """Return the entropy, if the run computes it, and of the micro-batch's columns those that the shaping asks for.

    A column that is missing is left out: the shaping then says what to set.
    """
    inputs = {} if entropy is None else {"entropy": entropy}
    for name, column in _COLUMNS.items():
        if name in asked and column in data:
            inputs[name] = data.select(column).to_padded_tensor()[column]
    if "success_rate" in asked and "success_rate" in data:
        rates = data["success_rate"]  # one number for each response
        rates = rates.values() if rates.is_nested else rates
        mask = data.select("response_mask").to_padded_tensor()["response_mask"]
        inputs["success_rate"] = rates.reshape(-1, 1).expand(mask.shape)
    return inputs


def _weighted_kl_loss(config: Any, model_output: Any, inputs: dict[str, torch.Tensor], data: Any) -> torch.Tensor:
    """Compute the aggregated weighted KL of one micro-batch, padded and counted as veRL's own KL loss."""
    log_prob = losses.no_padding_2_padding(model_output["log_probs"], data)
    padded = data.select("response_mask", "old_log_probs", "ref_log_prob", "advantages").to_padded_tensor()
    response_mask = padded["response_mask"].bool()
    tokens = Tokens.of_batch(
        log_prob,
        old_log_prob=padded["old_log_probs"],
        advantages=padded["advantages"],
        response_mask=response_mask,
        **inputs,
    )
    penalty = weighted_kl(
        log_prob,
        ref_log_prob=padded["ref_log_prob"],
        weights=token_weights(tokens, config.policy_loss),
        response_mask=response_mask,
        kind=config.policy_loss.kl,
    )
    return aggregate_loss(
        penalty, response_mask=response_mask, loss_agg_mode=config.loss_agg_mode, **config.global_batch_info
    )


def _token_metrics(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics with every statistic over tokens in a :class:`TokenMetric`."""
    for name, metric in metrics.items():
        values = metric.values if isinstance(metric, Metric) else []
        if len(values) == 1 and isinstance(values[0], TokenStatistic):
            metrics[name] = TokenMetric(values[0])
    return metrics


install_ppo_loss()
