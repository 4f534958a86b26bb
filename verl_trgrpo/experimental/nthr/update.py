"""Scale a batch's advantages before its update, in a wrapper of veRL's ``TrainingWorker.train_mini_batch``.

Why: NTHR needs a forward pass over the batch, and hidden states, which a policy loss of veRL does not see. The method that is
wrapped runs once per step on every rank, in every trainer mode. Only runs whose options ask for it are changed, as by
``verl_plugin.lopti``.

Remove when veRL has a hook before the update of a batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from verl.utils import tensordict_utils as tu

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.experimental.nthr.influence import influences, prediction_errors
from verl_trgrpo.verl_plugin import lopti


def install_nthr() -> None:
    """Wrap ``TrainingWorker.train_mini_batch`` in this process, once."""
    lopti.install_wrapper(_wrap, "has_nthr")


def check_engine(actor: Any) -> None:
    """Check that the engine of an actor that has NTHR shows it hidden states and logits.

    Args:
        actor: veRL's ``ActorConfig`` with a ``NTHRPolicyLossConfig``.

    Raises:
        ValueError: settings that hide them; all are listed.
    """
    if actor.policy_loss.nthr is None:
        return
    parts = getattr(actor.engine, "ulysses_sequence_parallel_size", 1)
    settings = (
        (f"strategy={actor.strategy}", actor.strategy not in ("fsdp", "fsdp2"), "fsdp2"),
        ("use_fused_kernels=true", actor.use_fused_kernels, "false"),
        (f"ulysses_sequence_parallel_size={parts}", parts > 1, "1"),
    )
    raise_invalid(
        [
            f"{setting} hides hidden states or logits from policy_loss.nthr; set {setting.partition('=')[0]}={right}"
            for setting, wrong, right in settings
            if wrong
        ]
    )


def _wrap(train_mini_batch: Callable[..., Any]) -> Callable[..., Any]:
    def train_mini_batch_with_influences(self: Any, data: Any) -> Any:
        actor = lopti.actor_of(self)
        options = getattr(getattr(actor, "policy_loss", None), "nthr", None)
        if options is None:
            return train_mini_batch(self, data)
        check_engine(actor)
        data = data.copy()
        data["advantages"], selected = _scaled_advantages(self, data, options)
        return lopti.with_metric([train_mini_batch(self, data)], "actor/nthr_selected_frac", selected)

    return train_mini_batch_with_influences


class _Group(NamedTuple):
    """Hold the share of right responses of a group that has wrong ones, too, and its tokens, (V',) ascending."""

    share: float
    vocabulary: torch.Tensor


def _scaled_advantages(worker: Any, data: Any, options: Any) -> tuple[torch.Tensor, float]:
    """Return the advantages with those of selected tokens scaled, and the share of selected tokens of wrong responses.

    Groups may be spread over ranks, as veRL's ``balance_batch`` does: their sums are all-reduced.
    """
    device, ranks = worker.device_name, worker.engine.get_data_parallel_group()
    uids = list(tu.get(data, "uid"))
    right = [float(scores.sum()) >= options.correct_from for scores in data["rm_scores"].unbind()]
    masks = [mask.bool() for mask in data["response_mask"].unbind()]
    tokens = [ids[mask].to(device) for ids, mask in zip(data["responses"].unbind(), masks, strict=True)]
    own = [(uid, good, ids.unique().cpu().numpy()) for uid, good, ids in zip(uids, right, tokens, strict=True)]
    by_rank = lopti.gathered(worker, own)
    groups = _mixed_groups(by_rank, device)
    factors = [torch.ones(len(mask)) for mask in masks]
    counts = torch.zeros(2, device=device)
    names = list(groups)
    for start in range(0, len(names), options.groups_at_a_time):
        part = names[start : start + options.groups_at_a_time]
        count = max(sum(uid in part for uid, _, _ in rows) for rows in by_rank)
        vocabularies = [groups[uid].vocabulary if uid in part else None for uid in uids]
        features = _features(worker, data, tokens, masks, vocabularies, count)
        for uid in part:
            rows = [row for row in features if uids[row] == uid]
            size = (len(groups[uid].vocabulary), worker.engine.module.get_output_embeddings().in_features)
            matrix = torch.zeros(size, device=device)
            scores, lowest = _influences(features, rows, right, matrix, ranks, options.own_influence)
            for row in (row for row in rows if not right[row]):
                selected = scores[row] > options.beta * lowest
                factors[row][masks[row]] = torch.where(selected, 2 * abs(0.5 - groups[uid].share), 1.0).cpu()
                counts += torch.stack([selected.sum(), torch.tensor(len(selected), device=device)])
        del features  # before those of the next part
    torch.distributed.all_reduce(counts, group=ranks)
    return lopti.scaled_rows(data["advantages"], factors), float(counts[0] / counts[1].clamp(min=1))


def _mixed_groups(by_rank: list[list[tuple[str, bool, np.ndarray]]], device: str) -> dict[str, _Group]:
    """Return the groups with right and wrong responses by label, in the same order on all ranks.

    Args:
        by_rank: label of the group, whether it is right, and tokens of each response.
        device: of the vocabularies.
    """
    responses: dict[str, list[tuple[bool, np.ndarray]]] = {}
    for uid, good, ids in itertools.chain.from_iterable(by_rank):
        responses.setdefault(uid, []).append((good, ids))
    found = {}
    for uid, rows in responses.items():
        share = sum(good for good, _ in rows) / len(rows)
        if 0 < share < 1:
            vocabulary = torch.from_numpy(np.unique(np.concatenate([ids for _, ids in rows])))
            found[uid] = _Group(share, vocabulary.to(device))
    return found


def _influences(
    features: dict[int, tuple[torch.Tensor, torch.Tensor]],
    rows: list[int],
    right: list[bool],
    matrix: torch.Tensor,
    ranks: Any,
    own: bool,
) -> tuple[dict[int, torch.Tensor], torch.Tensor]:
    """Return s (T,) of this rank's responses of a group by row, and the smallest mean of s among its right ones on all ranks.

    Args:
        features: what `_features` returns.
        rows: of the group.
        right: whether the response of a row is right.
        matrix: zeros (V', d), filled in place with M.
        ranks: process group.
        own: the mean of a right response has its influence on itself.
    """
    for row in (row for row in rows if right[row]):
        matrix += features[row][0].T @ features[row][1]
    torch.distributed.all_reduce(matrix, group=ranks)
    scores = {row: influences(*features[row], matrix) for row in rows}
    lowest = torch.tensor(torch.inf, device=matrix.device)
    for row in (row for row in rows if right[row]):
        errors, hidden = features[row]
        on_itself = 0.0 if own else influences(errors, hidden, errors.T @ hidden)
        lowest = torch.minimum(lowest, (scores[row] - on_itself).mean())
    torch.distributed.all_reduce(lowest, torch.distributed.ReduceOp.MIN, ranks)
    return scores, lowest


def _lengths(data: Any) -> tuple[list[int], list[int]]:
    """Return the numbers of tokens of prompts and of responses, nested or padded."""
    prompts, responses = data["prompts"], data["responses"]
    if prompts.is_nested:
        return prompts.offsets().diff().tolist(), responses.offsets().diff().tolist()
    lengths, whole = data["attention_mask"][:, : prompts.shape[1]].sum(-1), data["attention_mask"].sum(-1)
    return lengths.tolist(), (whole - lengths).tolist()


def _features(
    worker: Any, data: Any, tokens: list[torch.Tensor], masks: list[torch.Tensor], vocabularies: list[Any], count: int
) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """Return prediction errors (T, V') and hidden states (T, d) of each row that has a vocabulary.

    Row after row passes forward without gradient, through the worker's ``infer_batch``, and a hook on the output layer sees it.
    All ranks have to do that `count` times together: those with less rows repeat one.
    """
    rows = [row for row, vocabulary in enumerate(vocabularies) if vocabulary is not None]
    prompts, responses = _lengths(data)
    temperature = tu.get(data, "temperature")
    found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    calls = 0

    def keep(_: Any, arguments: tuple[torch.Tensor, ...], logits: torch.Tensor) -> None:
        nonlocal calls
        calls += 1
        if calls <= len(rows) and len(tokens[row := rows[calls - 1]]):
            hidden = arguments[0][0]
            # The CPU engine computes the output layer at the positions that predict the response alone.
            first = 0 if len(hidden) == responses[row] else prompts[row] - 1
            places = first + masks[row].nonzero()[:, 0].to(logits.device)
            errors = prediction_errors(logits[0], places, tokens[row], vocabularies[row], temperature)
            found[row] = errors, hidden[places].float()

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
