"""One batch, one model, many layouts: losses and gradients through veRL's own training worker."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import random
import socket
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.conftest import composed, shipped_yaml_parsed_once
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.runs.environment import training_environment

ROWS = 16

# Columns of the batch; of tensors, but for the group's label in `uid`.
Batch = dict[str, list[Any]]


@dataclass(frozen=True)
class Case:
    """One update of the batch.

    Args:
        loss: Hydra overrides that choose the loss.
        layout: rows of a micro-batch, or a dynamic batch's largest number of tokens where that is above `ROWS`.
        model: Hydra overrides that build the worker, e.g. LoRA. Cases of one model should follow each other.
        rows: first row of the batch that takes part, and the one after the last.
        rewards: of each response, in groups of four; the advantages are what veRL's trainer computes of them with the
            configuration of `loss`, in place of the batch's.
        broken: the first response has NaN for its advantages.
        mini_batches: updates of one pass over the batch.
        padded: columns are padded, as by the trainers of veRL before and beside its v1 trainer.
    """

    loss: tuple[str, ...]
    layout: int
    model: tuple[str, ...] = ()
    rows: tuple[int, int] = (0, ROWS)
    rewards: tuple[float, ...] = ()
    broken: bool = False
    mini_batches: int = 1
    padded: bool = False


@dataclass(frozen=True)
class Update:
    """What an update found.

    Args:
        metrics: what veRL's trainer logs.
        gradient: flat, over all ranks, before clipping; of the last update, and empty if the optimizer made no step.
        traffic: collective operations of one rank by name: calls, and bytes of the tensors given to them.
        weights: parameters after the update, by name.
        error: why there was no update.
    """

    metrics: dict[str, float]
    gradient: torch.Tensor
    traffic: dict[str, tuple[int, int]]
    weights: dict[str, torch.Tensor]
    error: str = ""


class Traffic(TorchDispatchMode):
    """Counts the collective operations called within it while `counting`; :class:`Update` says how."""

    def __init__(self) -> None:
        super().__init__()
        self.counting = True
        self.found: dict[str, tuple[int, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.counting and func.namespace in ("c10d", "_c10d_functional"):
            calls, size = self.found.get(func._opname, (0, 0))
            tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
            self.found[func._opname] = (calls + 1, size + sum(tensor.nbytes for tensor in tensors))
        return func(*args, **(kwargs or {}))


def log_probs_of(model: Any, input_ids: torch.Tensor, n_response: int) -> torch.Tensor:
    """(n_response,) log-probabilities of the last tokens of one sequence, without padding."""
    logits = model(input_ids=input_ids[None]).logits[0, -n_response - 1 : -1]
    return torch.log_softmax(logits, -1).gather(-1, input_ids[-n_response:, None]).squeeze(-1)


@torch.no_grad()
def make_batch() -> Batch:
    """Puzzles with answers of 21 to about 160 tokens, some of them odd, two with a gap of observed tokens in the mask."""
    from examples.makers import demonstrations
    from tests.demos.models import load, prompt_text
    from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles

    tokenizer, model = load(CHECKPOINT)
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    batch: Batch = {}
    for row, puzzle in enumerate(generate_puzzles(3, ROWS, seed=5)):
        texts = (
            prompt_text(tokenizer, puzzle),
            demonstrations.truth_table_response(puzzle, careful=row % 3 == 0, rng=rng),
        )
        prompt, response = (tokenizer.encode(text, return_tensors="pt")[0] for text in texts)
        # Without improbable tokens all weights would be at their upper bound.
        odd = torch.rand(len(response), generator=generator) < 0.15
        response[odd] = torch.randint(10, 300, (int(odd.sum()),), generator=generator)
        mask = torch.ones(len(response))
        if row in (3, 10):
            mask[5:12] = 0
        tokens = torch.cat([prompt, response])
        log_probs = log_probs_of(model, tokens, len(response))
        noise = 0.2 * torch.randn(2, len(response), generator=generator)
        values = {
            "input_ids": tokens, "position_ids": torch.arange(len(tokens)), "prompts": prompt, "responses": response,
            "response_mask": mask, "loss_mask": mask, "old_log_probs": (log_probs + noise[0]).clamp(max=0),
            "ref_log_prob": (log_probs + noise[1]).clamp(max=0),
            "advantages": torch.full((len(response),), rng.choice([-1.5, -0.4, 0.7, 1.8])),
        }  # fmt: skip
        for name, value in values.items():
            batch.setdefault(name, []).append(value)
    return batch


def rank_environment(world_size: int) -> dict[str, str]:
    """What a launcher would give each rank of a new process group, but for its number."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    group = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return training_environment(True, os.devnull) | group


def run_ranks(batch: Batch, cases: Sequence[Case], world_size: int) -> list[Update]:
    """Run `cases` on `world_size` processes joined by gloo; one update per case."""
    context = multiprocessing.get_context("spawn")
    environment = rank_environment(world_size)
    with mock.patch.dict(os.environ, environment), ProcessPoolExecutor(world_size, context) as pool:
        ranks = [pool.submit(run_rank, rank, batch, cases) for rank in range(world_size)]
        try:
            done, _ = wait(ranks, timeout=3600, return_when=FIRST_EXCEPTION)
            assert done, "no rank ended in time"
            return next(rank.result() for rank in done if rank.exception() or rank is ranks[0])
        finally:
            for process in multiprocessing.active_children():
                process.kill()


def run_rank(rank: int, batch: Batch, cases: Sequence[Case]) -> list[Update]:
    """One rank's part; the learning rate is 0 unless a case's `model` says otherwise, so that cases see the same weights."""
    os.environ["RANK"] = str(rank)
    worker, built, found = None, None, []
    with shipped_yaml_parsed_once():
        for case in cases:
            if worker is None or case.model != built:
                worker, built = training_worker(case.model), case.model
                gc.freeze()  # what stays is not gone through again
            found.append(run_case(worker, batch, case))
    torch.distributed.destroy_process_group()
    return found


@functools.cache
def configuration(*overrides: str) -> Any:
    """The composed configuration of a run."""
    from verl_trgrpo.runs.overrides import quoted

    fixed = [
        "platform=cpu", f"actor_rollout_ref.model.path={quoted(CHECKPOINT)}",
        "actor_rollout_ref.actor.optim.lr=0.0", "actor_rollout_ref.actor.optim.clip_grad=1e9",
    ]  # fmt: skip
    return composed([*fixed, *overrides], "kk_quickstart").config


@functools.cache
def typed_configuration(*overrides: str) -> tuple[Any, Any]:
    """veRL's typed model and actor configuration, as its worker makes them."""
    from verl.utils.config import omega_conf_to_dataclass

    config = configuration(*overrides).actor_rollout_ref
    typed_model, actor = omega_conf_to_dataclass(config.model), omega_conf_to_dataclass(config.actor)
    actor.model_config = typed_model
    return typed_model, actor


def training_worker(overrides: Sequence[str]) -> Any:
    """veRL's worker with its FSDP2 engine and an initialised model."""
    model_config, actor = typed_configuration(*overrides)  # imports the CPU engine
    from verl.workers.config import TrainingWorkerConfig
    from verl.workers.engine_workers import TrainingWorker

    torch.manual_seed(0)  # of LoRA's initial weights
    parts = {"engine_config": actor.engine, "optimizer_config": actor.optim, "checkpoint_config": actor.checkpoint}
    worker = TrainingWorker(TrainingWorkerConfig(model_type="language_model", model_config=model_config, **parts))
    worker.reset()
    return worker


def gradient_of(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """All gradients, gathered over ranks, in one vector."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    return torch.cat([getattr(p.grad, "full_tensor", lambda p=p: p.grad)().flatten() for p in parameters])


def padded_columns(tensors: Batch) -> Any:
    """What veRL's older trainers make of a batch: prompts padded on the left, responses on the right, wider than the longest."""
    from tensordict import TensorDict
    from verl.workers.utils.padding import left_right_2_no_padding

    pad = functools.partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
    columns = {
        name: torch.nn.functional.pad(pad(values), (0, 3))
        for name, values in tensors.items()
        if name not in ("prompts", "input_ids", "position_ids", "loss_mask")
    }
    columns["prompts"] = pad(tensors["prompts"], padding_side="left")
    parts = (
        pad([torch.ones_like(row) for row in tensors["prompts"]], padding_side="left"),
        torch.nn.functional.pad(pad([torch.ones_like(row) for row in tensors["responses"]]), (0, 3)),
    )
    columns["attention_mask"] = torch.cat(parts, 1)
    columns["input_ids"] = torch.cat([columns["prompts"], columns["responses"]], 1)
    columns["position_ids"] = (columns["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    return left_right_2_no_padding(TensorDict(columns, len(columns["prompts"])))


def asked(
    batch: Batch, own: slice, rows: int, layout: int, entropy: bool = False, mini_batches: int = 1, padded: bool = False
) -> Any:
    """What veRL's trainer hands to a rank for one update: its `own` of `rows` responses, cut as `Case.layout` says."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu

    tensors = {name: values[own] for name, values in batch.items() if name != "uid"}
    if padded:
        data = padded_columns(tensors)
    else:
        nested = {name: torch.nested.as_nested_tensor(values, layout=torch.jagged) for name, values in tensors.items()}
        data = TensorDict(nested, batch_size=own.stop - own.start)
    if "uid" in batch:
        tu.assign_non_tensor_stack(data, "uid", batch["uid"][own])
    tu.assign_non_tensor(
        data, calculate_entropy=entropy, global_batch_size=rows // mini_batches, mini_batch_size=rows // mini_batches, epochs=1,
        dataloader_kwargs={"shuffle": False}, temperature=1.0, use_dynamic_bsz=layout > ROWS,
        micro_batch_size_per_gpu=layout, max_token_len_per_gpu=layout,
    )  # fmt: skip
    return data


def loss_function(*overrides: str) -> Any:
    """What veRL's worker calls on a micro-batch."""
    from verl.workers import engine_workers

    return functools.partial(engine_workers.ppo_loss, config=typed_configuration(*overrides)[1])


def advantages_of(rewards: Sequence[float], options: Any) -> list[float]:
    """What veRL's trainer computes of `rewards`, one number for each response, with options like ``config.algorithm``."""
    from verl.protocol import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    groups = np.array([str(row // 4) for row in range(len(rewards))], dtype=object)
    columns = {"token_level_rewards": torch.tensor(rewards)[:, None], "response_mask": torch.ones(len(rewards), 1)}
    data = DataProto.from_dict(columns, {"uid": groups})
    by_std = options.norm_adv_by_std_in_grpo
    compute_advantage(data, options.adv_estimator, norm_adv_by_std_in_grpo=by_std, config=options)
    return data.batch["advantages"][:, 0].tolist()


def advantages_in(batch: Batch, advantages: Sequence[float]) -> list[torch.Tensor]:
    """The column of one advantage for each response."""
    return [torch.full_like(row, one) for row, one in zip(batch["advantages"], advantages, strict=True)]


def grouped(rewards: Sequence[float], size: int) -> Batch:
    """The columns by which a worker knows rewards, one for each response, and groups of `size` neighbours."""
    return {
        "uid": [str(row // size) for row in range(len(rewards))],
        "rm_scores": [torch.tensor([0.0, one]) for one in rewards],
    }


def run_case(worker: Any, batch: Batch, case: Case) -> Update:
    """One update of this rank's share of the rows."""
    from verl.utils import tensordict_utils as tu
    from verl.utils.metric import reduce_metrics

    if case.rewards:
        advantages = advantages_of(case.rewards, configuration(*case.model, *case.loss).algorithm)
        batch = {**batch, "advantages": advantages_in(batch, advantages), **grouped(case.rewards, 4)}
    if case.broken:
        first, *others = batch["advantages"]
        batch = {**batch, "advantages": [torch.full_like(first, torch.nan), *others]}
    worker.set_loss_fn(loss_function(*case.model, *case.loss))
    first, end = case.rows
    share = (end - first) // worker.engine.get_data_parallel_size()
    start = first + worker.engine.get_data_parallel_rank() * share
    seen: list[torch.Tensor] = []
    traffic = Traffic()
    entropy = typed_configuration(*case.model, *case.loss)[1].calculate_entropy
    data = asked(batch, slice(start, start + share), end - first, case.layout, entropy, case.mini_batches, case.padded)

    def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        traffic.counting = False
        seen.append(gradient_of(optimizer))
        traffic.counting = True

    hook = worker.engine.optimizer.register_step_pre_hook(look)
    metrics, error = {}, ""
    try:
        with traffic:
            output = worker.train_mini_batch(data)
        metrics = {name: float(value) for name, value in reduce_metrics(tu.get(output, "metrics")).items()}
    except ValueError as refused:
        if not case.broken:
            raise
        error = str(refused)
    finally:
        hook.remove()
    parameters = worker.engine.module.named_parameters()
    weights = {name: getattr(p, "full_tensor", lambda p=p: p)().detach().clone() for name, p in parameters}
    return Update(metrics, seen[-1] if seen else torch.empty(0), traffic.found, weights, error)
