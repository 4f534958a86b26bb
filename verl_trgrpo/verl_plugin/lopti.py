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
    from verl.workers.engine_workers import TrainingWorker  # takes seconds

    found = TrainingWorker.train_mini_batch
    if not hasattr(found, _MARK):
        wrapped = functools.wraps(found)(_wrap(found))  # veRL's dispatch mode is an attribute
        setattr(wrapped, _MARK, True)
        TrainingWorker.train_mini_batch = wrapped  # type: ignore[method-assign]


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
    if actor.policy_loss.opsm is not None:
        messages.append(
            "policy_loss.opsm takes the mean over the tokens of a pass of policy_loss.lopti, not over the response; set "
            "mismatch=geo_mask, or remove lopti"
        )
    raise_invalid(messages)


def _wrap(train_mini_batch: Callable[..., Any]) -> Callable[..., Any]:
    def train_mini_batch_in_passes(self: Any, data: Any) -> Any:
        actor = getattr(self.loss_fn, "keywords", {}).get("config")  # a critic's loss has none
        options = getattr(getattr(actor, "policy_loss", None), "lopti", None)
        if options is None:
            return train_mini_batch(self, data)
        check_lopti(actor)
        passes, rare = _passes(self, data, options)
        outputs = []
        for part in passes:
            with nullcontext() if part is passes[-1] else _without_scheduler(self.engine):
                outputs.append(train_mini_batch(self, part))
        if outputs[-1] is None:  # of a rank that reports nothing
            return None
        metrics: dict[str, list[Any]] = {"actor/lopti_rare_frac": [rare]}
        for output in outputs:
            append_to_dict(metrics, tu.get(output, "metrics"))
        return tu.get_tensordict(tensor_dict={}, non_tensor_dict={"metrics": metrics}).cpu()

    return train_mini_batch_in_passes


@contextmanager
def _without_scheduler(engine: Any) -> Iterator[None]:
    """Keep the learning rate: only the last pass over a batch is a step of the scheduler."""
    engine.lr_scheduler_step = lambda: None
    try:
        yield
    finally:
        del engine.lr_scheduler_step


def _passes(worker: Any, data: Any, options: LoptiOptions) -> tuple[list[Any], float]:
    """Return the batch once for each pass, and the share of rare tokens in all ranks.

    A pass has the response mask of its tokens, which policy loss, KL and entropy obey. ``loss_mask``, of which veRL counts the
    batch's tokens, stays, so that ``token-mean`` divides each pass by all tokens.
    """
    mask, probs = data["response_mask"], [old.exp() for old in data["old_log_probs"].unbind()]
    own = torch.cat([row[valid.bool()] for row, valid in zip(probs, mask.unbind(), strict=True)])
    group = worker.engine.get_data_parallel_group()
    values: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(values, own.float().cpu().numpy(), group)
    everywhere = np.concatenate(values)
    threshold = options.threshold if options.quantile is None else float(np.quantile(everywhere, options.quantile))
    passes = []
    for rare in (True, False) if options.rare_first else (False, True):
        passes.append(data.copy())
        passes[-1]["response_mask"] = part = mask.clone()  # nested, as in veRL's v1 trainer, or padded
        for row, known in zip(part.unbind(), probs, strict=True):
            row.mul_((known < threshold) == rare)
    return passes, float((everywhere < threshold).mean())
