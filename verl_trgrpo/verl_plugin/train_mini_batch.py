"""Wrap veRL's ``TrainingWorker.train_mini_batch``, which updates a worker's model with its share of a batch.

Why: a policy loss of veRL sees one micro-batch of one update, and no hidden states; the trainer calls the update once. So
Lopti, which updates twice with different tokens, and NTHR, which needs a forward pass before the first update, have no
extension point. The method that is wrapped runs once per step on every rank, in every trainer mode.

Only runs that ask for one of them are changed: the options (``actor.policy_loss.lopti``, ``nthr``) install the wrapper when
they are built or unpickled, which happens in each worker. ``register`` cannot do it: importing veRL's workers takes seconds.

Remove when veRL has a hook before the update of a batch, and lets one call for several updates.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from verl.utils import tensordict_utils as tu
from verl.utils.py_functional import append_to_dict

from verl_trgrpo.core import LoptiOptions, NTHROptions
from verl_trgrpo.core.nthr import influences, prediction_errors
from verl_trgrpo.verl_plugin import config as plugin_config
from verl_trgrpo.verl_plugin.advantage_estimator import split_label

_MARK = "has_batch_updates"


def install() -> None:
    """Wrap ``TrainingWorker.train_mini_batch`` in this process, once."""
    from verl.workers.engine_workers import TrainingWorker

    if not hasattr(TrainingWorker.train_mini_batch, _MARK):
        TrainingWorker.train_mini_batch = _wrap(TrainingWorker.train_mini_batch)  # type: ignore[method-assign]


def _wrap(train_mini_batch: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(train_mini_batch)  # veRL's dispatch mode is an attribute
    def train_mini_batch_in_passes(self: Any, data: Any) -> Any:
        # The options of the actor; a critic's loss does not have them.
        actor = getattr(self.loss_fn, "keywords", {}).get("config")
        loss = getattr(actor, "policy_loss", None)
        lopti, nthr = getattr(loss, "lopti", None), getattr(loss, "nthr", None)
        if lopti is None and nthr is None:
            return train_mini_batch(self, data)
        plugin_config.check_batch_updates(actor)
        metrics: dict[str, list[Any]] = {}
        data = data.copy()
        if nthr is not None:
            data["advantages"], metrics["actor/nthr_selected_frac"] = _nthr_advantages(self, data, nthr)
        passes = [data]
        if lopti is not None:
            passes, metrics["actor/lopti_rare_frac"] = _lopti_passes(self, data, lopti)
        for part in passes:
            with nullcontext() if part is passes[-1] else _without_scheduler(self.engine):
                output = train_mini_batch(self, part)
            if output is not None:  # None on ranks that report nothing
                append_to_dict(metrics, tu.get(output, "metrics"))
        if output is None:
            return None
        return tu.get_tensordict(tensor_dict={}, non_tensor_dict={"metrics": metrics}).cpu()

    setattr(train_mini_batch_in_passes, _MARK, True)
    return train_mini_batch_in_passes


@contextmanager
def _without_scheduler(engine: Any) -> Iterator[None]:
    """Keep the learning rate: only the last pass over a batch is a step of the scheduler."""
    engine.lr_scheduler_step = lambda: None
    try:
        yield
    finally:
        del engine.lr_scheduler_step


def _gathered(worker: Any, value: Any) -> list[Any]:
    """Return the `value` of each data-parallel rank, in their order."""
    group = worker.engine.get_data_parallel_group()
    values = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(values, value, group)
    return values


def _with_values(nested: Any, values: torch.Tensor) -> torch.Tensor:
    return torch.nested.nested_tensor_from_jagged(values.to(nested.dtype), nested.offsets())


def _lopti_passes(worker: Any, data: Any, options: LoptiOptions) -> tuple[list[Any], list[float]]:
    """Return the batch once for each pass, and the share of rare tokens in all ranks.

    A pass has the response mask of its tokens, which policy loss, KL and entropy obey. ``loss_mask``, of which veRL counts the
    batch's tokens, stays, so that ``token-mean`` divides each pass by all tokens.
    """
    mask = data["response_mask"]
    probs, valid = data["old_log_probs"].values().exp(), mask.values().bool()
    everywhere = np.concatenate(_gathered(worker, probs[valid].float().cpu().numpy()))
    threshold = options.threshold if options.quantile is None else float(np.quantile(everywhere, options.quantile))
    rare = probs < threshold
    passes = []
    for chosen in (rare, ~rare) if options.rare_first else (~rare, rare):
        passes.append(data.copy())
        passes[-1]["response_mask"] = _with_values(mask, mask.values() * chosen)
    return passes, [float((everywhere < threshold).mean())]


def _nthr_advantages(worker: Any, data: Any, options: NTHROptions) -> tuple[torch.Tensor, list[float]]:
    """Return the advantages with those of selected tokens scaled, and the share of selected tokens of wrong responses.

    Groups may be spread over ranks, as veRL's ``balance_batch`` does: their sums are all-reduced.
    """
    device, group = worker.device_name, worker.engine.get_data_parallel_group()
    uids = [split_label(label)[0] for label in tu.get(data, "uid")]
    right = [float(scores.sum()) >= options.correct_from for scores in data["rm_scores"].unbind()]
    masks = [mask.bool() for mask in data["response_mask"].unbind()]
    tokens = [ids[mask].to(device) for ids, mask in zip(data["responses"].unbind(), masks, strict=True)]
    own = [(uid, good, ids.unique().cpu().numpy()) for uid, good, ids in zip(uids, right, tokens, strict=True)]
    by_rank = _gathered(worker, own)
    groups: dict[str, list[tuple[bool, np.ndarray]]] = {}
    for uid, good, ids in itertools.chain.from_iterable(by_rank):
        groups.setdefault(uid, []).append((good, ids))
    shares = {uid: sum(good for good, _ in rows) / len(rows) for uid, rows in groups.items()}
    vocabularies = {
        uid: torch.from_numpy(np.unique(np.concatenate([ids for _, ids in rows]))).to(device)
        for uid, rows in groups.items()
        if 0 < shares[uid] < 1
    }
    size = worker.engine.module.get_output_embeddings().in_features
    factors = [torch.ones(len(mask)) for mask in masks]
    counts = torch.zeros(2, device=device)
    mixed = list(vocabularies)
    for start in range(0, len(mixed), options.groups_at_a_time):
        part = mixed[start : start + options.groups_at_a_time]
        count = max(sum(uid in part for uid, _, _ in rows) for rows in by_rank)
        features = _features(
            worker, data, tokens, masks, [vocabularies[uid] if uid in part else None for uid in uids], count
        )
        for uid in part:
            rows = [row for row in features if uids[row] == uid]
            matrix = torch.zeros(len(vocabularies[uid]), size, device=device)
            for row in (row for row in rows if right[row]):
                matrix += features[row][0].T @ features[row][1]
            torch.distributed.all_reduce(matrix, group=group)
            scores = {row: influences(*features[row], matrix) for row in rows}
            means = [scores[row].mean() for row in rows if right[row]]
            lowest = torch.stack([torch.tensor(torch.inf, device=device), *means]).min()
            torch.distributed.all_reduce(lowest, torch.distributed.ReduceOp.MIN, group)
            for row in (row for row in rows if not right[row]):
                selected = scores[row] > options.beta * lowest
                factors[row][masks[row]] = torch.where(selected, 2 * abs(0.5 - shares[uid]), 1.0).cpu()
                counts += torch.stack([selected.sum(), torch.tensor(len(selected), device=device)])
        del features  # before those of the next part
    torch.distributed.all_reduce(counts, group=group)
    advantages = data["advantages"]
    scaled = _with_values(advantages, advantages.values() * torch.cat(factors).to(advantages.device))
    return scaled, [float(counts[0] / counts[1].clamp(min=1))]


def _features(
    worker: Any, data: Any, tokens: list[torch.Tensor], masks: list[torch.Tensor], vocabularies: list[Any], count: int
) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """Return prediction errors (T, V') and hidden states (T, d) of each row that has a vocabulary.

    Row after row passes forward without gradient, through the worker's ``infer_batch``, and a hook on the output layer sees it.
    All ranks have to do that `count` times together: those with less rows repeat one.
    """
    rows = [row for row, vocabulary in enumerate(vocabularies) if vocabulary is not None]
    prompts = data["prompts"].offsets().diff().tolist()
    temperature = tu.get(data, "temperature")
    found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    calls = 0

    def keep(_: Any, arguments: tuple[torch.Tensor, ...], logits: torch.Tensor) -> None:
        nonlocal calls
        calls += 1
        if calls <= len(rows) and len(tokens[row := rows[calls - 1]]):
            hidden, mask = arguments[0][0], masks[row].to(logits.device)
            # The CPU engine computes the output layer at the positions that predict the response alone.
            first = 0 if len(hidden) == len(mask) else prompts[row] - 1
            here = slice(first, first + len(mask))
            errors = prediction_errors(logits[0, here][mask] / temperature, tokens[row], vocabularies[row])
            found[row] = errors, hidden[here][mask].float()

    part = tu.index_select_tensor_dict(data, [*rows, *[0] * (count - len(rows))])
    tu.assign_non_tensor(
        part, compute_loss=False, calculate_entropy=False, use_dynamic_bsz=False, micro_batch_size_per_gpu=1
    )
    hook = worker.engine.module.get_output_embeddings().register_forward_hook(keep)
    try:
        worker.infer_batch(part)
    finally:
        hook.remove()
    if calls != count:
        raise ValueError(
            f"policy_loss.nthr: the output layer ran {calls} times for {count} responses, so their hidden states are not "
            "seen; use veRL's FSDP engine without fused kernels, or another algorithm"
        )
    return found
