"""One batch, one model, many layouts: losses and gradients through veRL's own training worker.

:func:`run_ranks` starts this module once per rank (``python -m tests.verl_plugin.cpu.invariance_worker MODEL BATCH CASES OUT``,
with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment). ``BATCH`` (torch.save) holds a list of 1-D tensors for
each field, ``CASES`` (JSON) a list of :class:`Case`. Rank 0 writes ``OUT``: for each case the metrics as the trainer
would log them, and the gradient before clipping. The learning rate is 0, so that all cases see the same weights.
"""

from __future__ import annotations

import functools
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from verl_trgrpo.runs.environment import training_environment

CONFIG = "kk_quickstart"
ROWS = 16


@dataclass(frozen=True)
class Case:
    """One update of the batch.

    Args:
        loss: Hydra overrides that choose the loss.
        layout: how veRL cuts a rank's share into micro-batches: ``use_dynamic_bsz``, ``micro_batch_size_per_gpu``,
            ``max_token_len_per_gpu``.
        model: Hydra overrides that build the worker, e.g. LoRA. Cases of one model should follow each other.
        rows: first row of the batch that takes part, and the one after the last.
    """

    loss: tuple[str, ...]
    layout: dict[str, Any]
    model: tuple[str, ...] = ()
    rows: tuple[int, int] = (0, ROWS)


@dataclass(frozen=True)
class Update:
    """What an update found: the metrics that veRL's trainer logs, and the flat gradient over all ranks."""

    metrics: dict[str, float]
    gradient: torch.Tensor


def micro_batches(size: int) -> dict[str, Any]:
    """Layout with micro-batches of ``size`` rows."""
    return {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": size}


def token_budget(tokens: int) -> dict[str, Any]:
    """Layout with micro-batches of at most ``tokens`` tokens."""
    return {"use_dynamic_bsz": True, "max_token_len_per_gpu": tokens}


def log_probs_of(model: Any, input_ids: torch.Tensor, n_response: int) -> torch.Tensor:
    """(n_response,) log-probabilities of the last tokens of one sequence, without padding."""
    logits = model(input_ids=input_ids[None]).logits[0, -n_response - 1 : -1]
    return torch.log_softmax(logits, -1).gather(-1, input_ids[-n_response:, None]).squeeze(-1)


def make_batch(checkpoint: Path) -> dict[str, list[torch.Tensor]]:
    """Puzzles with answers of 21 to about 160 tokens, some of them odd, two with a gap of observed tokens in the mask.

    Every field is a list of 1-D tensors, one per row.
    """
    from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles
    from verl_trgrpo.tiny.model import load
    from verl_trgrpo.tiny.puzzles import demonstration, prompt_text

    tokenizer, model = load(checkpoint)
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    batch: dict[str, list[torch.Tensor]] = {}
    for row, puzzle in enumerate(generate_puzzles(3, ROWS, seed=5)):
        text = demonstration(puzzle, careful=row % 3 == 0, rng=rng)
        prompt = tokenizer(prompt_text(tokenizer, puzzle), add_special_tokens=False, return_tensors="pt").input_ids[0]
        response = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids[0]
        # Without improbable tokens all weights would be at their upper bound.
        odd = torch.rand(len(response), generator=generator) < 0.15
        response[odd] = torch.randint(10, 300, (int(odd.sum()),), generator=generator)
        mask = torch.ones(len(response))
        if row in (3, 10):
            mask[5:12] = 0
        tokens = torch.cat([prompt, response])
        with torch.no_grad():
            log_probs = log_probs_of(model, tokens, len(response))
        noise = 0.2 * torch.randn(2, len(response), generator=generator)
        values = {
            "input_ids": tokens,
            "position_ids": torch.arange(len(tokens)),
            "prompts": prompt,
            "responses": response,
            "response_mask": mask,
            "loss_mask": mask,
            "old_log_probs": (log_probs + noise[0]).clamp(max=0),
            "ref_log_prob": (log_probs + noise[1]).clamp(max=0),
            "advantages": torch.full((len(response),), rng.choice([-1.5, -0.4, 0.7, 1.8])),
        }
        for name, value in values.items():
            batch.setdefault(name, []).append(value)
    return batch


def run_ranks(directory: Path, model: Path, cases: Sequence[Case], world_size: int) -> list[Update]:
    """Run ``cases`` on the ``batch.pt`` of a directory, on ``world_size`` processes joined by gloo; one update per case."""
    asked, out = directory / "cases.json", directory / "found.pt"
    asked.write_text(json.dumps([asdict(case) for case in cases]))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = training_environment(True, os.devnull)
    environment |= {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "tests.verl_plugin.cpu.invariance_worker"]
    command += map(str, (model, directory / "batch.pt", asked, out))
    logs = [directory / f"rank-{rank}.log" for rank in range(world_size)]
    ranks: list[subprocess.Popen[bytes]] = []
    for rank, log in enumerate(logs):
        with log.open("wb") as file:
            own, root = environment | {"RANK": str(rank)}, Path(__file__).parents[3]
            ranks.append(subprocess.Popen(command, env=own, cwd=root, stdout=file, stderr=subprocess.STDOUT))
    try:
        codes = [process.wait(timeout=280) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    if any(codes):
        failed = next(log for log, code in zip(logs, codes, strict=True) if code)
        raise RuntimeError(f"ranks ended with {codes}:\n{failed.read_text()[-3000:]}")
    return [Update(**found) for found in torch.load(out)]


@functools.cache
def typed_configuration(model: Path, *overrides: str) -> tuple[Any, Any]:
    """veRL's typed model and actor configuration, as its worker makes them."""
    from verl.utils.config import omega_conf_to_dataclass

    from verl_trgrpo.runs.compose import compose, quoted

    fixed = [
        "platform=cpu",
        f"actor_rollout_ref.model.path={quoted(model)}",
        "actor_rollout_ref.actor.optim.lr=0.0",
        "actor_rollout_ref.actor.optim.clip_grad=1e9",
    ]
    config = compose(CONFIG, [*fixed, *overrides]).config.actor_rollout_ref
    typed_model, actor = omega_conf_to_dataclass(config.model), omega_conf_to_dataclass(config.actor)
    actor.model_config = typed_model
    return typed_model, actor


def training_worker(model: Path, overrides: Sequence[str]) -> Any:
    """veRL's worker with its FSDP2 engine and an initialised model."""
    model_config, actor = typed_configuration(model, *overrides)  # imports the CPU engine
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


def loss_function(model: Path, case: Case) -> Callable[..., Any]:
    """The loss as veRL's actor calls it; composes the configuration, which takes longer than an update."""
    from verl.workers import engine_workers

    _, actor = typed_configuration(model, *case.model, *case.loss)
    return functools.partial(engine_workers.ppo_loss, config=actor)


def own_share(worker: Any, batch: dict[str, list[torch.Tensor]], case: Case) -> Any:
    """This rank's share of the rows, as veRL's trainer sends it."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu

    first, end = case.rows
    share = (end - first) // worker.engine.get_data_parallel_size()
    start = first + worker.engine.get_data_parallel_rank() * share
    own = slice(start, start + share)
    nested = {name: torch.nested.as_nested_tensor(rows[own], layout=torch.jagged) for name, rows in batch.items()}
    data = TensorDict(nested, batch_size=share)
    tu.assign_non_tensor(
        data,
        calculate_entropy=False,
        global_batch_size=end - first,
        mini_batch_size=end - first,
        epochs=1,
        dataloader_kwargs={"shuffle": False},
        temperature=1.0,
        **case.layout,
    )
    return data


def run_case(worker: Any, model: Path, batch: dict[str, list[torch.Tensor]], case: Case) -> Update:
    """One update of this rank's share of the rows, as veRL's trainer asks for it."""
    from verl.utils import tensordict_utils as tu
    from verl.utils.metric import reduce_metrics

    worker.set_loss_fn(loss_function(model, case))
    data = own_share(worker, batch, case)
    seen: list[torch.Tensor] = []
    hook = worker.engine.optimizer.register_step_pre_hook(lambda optimizer, *_: seen.append(gradient_of(optimizer)))
    try:
        output = worker.train_mini_batch(data)
    finally:
        hook.remove()
    [gradient] = seen
    metrics = {} if output is None else reduce_metrics(tu.get(output, "metrics"))  # None on sequence-parallel peers
    return Update({name: float(value) for name, value in metrics.items()}, gradient)


def main() -> None:
    model, batch_file, cases_file, out = map(Path, sys.argv[1:5])
    batch = torch.load(batch_file)
    worker, built, found = None, None, []
    for case in (Case(**fields) for fields in json.loads(cases_file.read_text())):
        if worker is None or case.model != built:
            worker, built = training_worker(model, case.model), case.model
        update = run_case(worker, model, batch, case)
        found.append({"metrics": update.metrics, "gradient": update.gradient})
    if torch.distributed.get_rank() == 0:
        torch.save(found, out)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
