"""Update with the rare tokens of a batch and with the others, in a wrapper of veRL's ``TrainingWorker.train_mini_batch``.

Why: a policy loss of veRL sees one micro-batch of one update, and the trainer calls the update of a batch once. So Lopti, which
updates twice with different tokens, has no extension point. The method that is wrapped runs once per step on every rank, in every
trainer mode.

Only runs that ask for it are changed: the options (``actor.policy_loss.lopti``) install the wrapper when they are built or
unpickled, which happens in each worker. ``register`` cannot do it: importing veRL's workers takes seconds.

Remove when veRL lets one call stand for several updates of a batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from verl.utils import tensordict_utils as tu
from verl.utils.py_functional import append_to_dict

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.core import LoptiOptions

_MARK = "has_lopti"


def install_lopti() -> None:
    """Wrap ``TrainingWorker.train_mini_batch`` in this process, once."""
    install_wrapper(_wrap, _MARK)


def install_wrapper(wrap: Callable[[Callable[..., Any]], Callable[..., Any]], mark: str) -> None:
    """Put `wrap` around ``TrainingWorker.train_mini_batch`` in this process, unless a wrapper with this mark is there."""
    from verl.workers.engine_workers import TrainingWorker  # takes seconds

    found = TrainingWorker.train_mini_batch
    if not hasattr(found, mark):
        wrapped = functools.wraps(found)(wrap(found))  # veRL's dispatch mode, and the marks of others, are attributes
        setattr(wrapped, mark, True)
        TrainingWorker.train_mini_batch = wrapped  # type: ignore[method-assign]


def actor_of(worker: Any) -> Any:
    """Return the actor's configuration of a worker; None for a critic, whose loss has none."""
    return getattr(worker.loss_fn, "keywords", {}).get("config")


# Losses whose passes do not add up to one update; tests/verl_plugin/test_lopti.py has all losses.
_NOT_IN_PASSES = ("tr_gspo", "tr_sapo", "tr_clip_cov", "tr_kl_cov")


def check_lopti(actor: Any) -> None:
    """Check that an actor's options allow its Lopti, if it has it.

    Args:
        actor: veRL's ``ActorConfig`` with a ``TRGRPOPolicyLossConfig``.

    Raises:
        ValueError: options that do not; all are listed.
    """
    if actor.policy_loss.lopti is None:
        return
    messages = []
    if actor.loss_agg_mode == "seq-mean-token-mean":
        messages.append(
            "loss_agg_mode=seq-mean-token-mean divides a pass of policy_loss.lopti by its own tokens of a response, which makes "
            "rare tokens weigh more; set loss_agg_mode=token-mean"
        )
    if (name := actor.policy_loss.loss_mode) in _NOT_IN_PASSES:
        messages.append(
            f"loss_mode={name.removeprefix('tr_')} takes ratios, means or shares over the tokens of a pass of policy_loss.lopti, "
            "not over all, so a rare token may weigh ten times as much; set loss_mode=tr_grpo"
        )
    raise_invalid(messages)


def _wrap(train_mini_batch: Callable[..., Any]) -> Callable[..., Any]:
    def train_mini_batch_in_passes(self: Any, data: Any) -> Any:
        actor = actor_of(self)
        options = getattr(getattr(actor, "policy_loss", None), "lopti", None)
        if options is None:
            return train_mini_batch(self, data)
        check_lopti(actor)
        passes, rare = _passes(self, data, options)
        outputs = []
        for part in passes:
            with nullcontext() if part is passes[-1] else _without_scheduler(self.engine):
                outputs.append(train_mini_batch(self, part))
        return with_metric(outputs, "actor/lopti_rare_frac", rare)

    return train_mini_batch_in_passes


def with_metric(outputs: list[Any], name: str, value: float) -> Any:
    """Return what the updates of one batch return together, with another metric; None on ranks that report nothing."""
    if outputs[-1] is None:
        return None
    metrics: dict[str, list[Any]] = {name: [value]}
    for output in outputs:
        append_to_dict(metrics, tu.get(output, "metrics"))
    return tu.get_tensordict(tensor_dict={}, non_tensor_dict={"metrics": metrics}).cpu()


@contextmanager
def _without_scheduler(engine: Any) -> Iterator[None]:
    """Keep the learning rate: only the last pass over a batch is a step of the scheduler."""
    engine.lr_scheduler_step = lambda: None
    try:
        yield
    finally:
        del engine.lr_scheduler_step


def gathered(worker: Any, value: Any) -> list[Any]:
    """Return the `value` of each data-parallel rank, in their order."""
    group = worker.engine.get_data_parallel_group()
    values = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(values, value, group)
    return values


def scaled_rows(column: torch.Tensor, factors: list[torch.Tensor]) -> torch.Tensor:
    """Return a column (batch, response length), nested as in veRL's v1 trainer or padded, times factors of each row."""
    column = column.clone()
    for row, factor in zip(column.unbind(), factors, strict=True):
        row.mul_(factor.to(row))
    return column


def _passes(worker: Any, data: Any, options: LoptiOptions) -> tuple[list[Any], float]:
    """Return the batch once for each pass, and the share of rare tokens in all ranks.

    A pass has the response mask of its tokens, which policy loss, KL and entropy obey. ``loss_mask``, of which veRL counts the
    batch's tokens, stays, so that ``token-mean`` divides each pass by all tokens.
    """
    mask, probs = data["response_mask"], [old.exp() for old in data["old_log_probs"].unbind()]
    own = torch.cat([row[valid.bool()] for row, valid in zip(probs, mask.unbind(), strict=True)])
    everywhere = np.concatenate(gathered(worker, own.float().cpu().numpy()))
    threshold = options.threshold if options.quantile is None else float(np.quantile(everywhere, options.quantile))
    passes = []
    for rare in (True, False) if options.rare_first else (False, True):
        passes.append(data.copy())
        passes[-1]["response_mask"] = scaled_rows(mask, [(row < threshold) == rare for row in probs])
    return passes, float((everywhere < threshold).mean())
