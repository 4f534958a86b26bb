"""Updates with sound and with broken advantages through veRL's own training worker, for ``test_nan_training.py``.

``python -m tests.runs.faults.nan_worker MODEL OUT`` writes to ``OUT`` (JSON) what each of :data:`UPDATES` did to the weights.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from pathlib import Path
from typing import Any

import torch

from tests.verl_plugin.cpu.invariance_worker import (
    ROWS,
    make_batch,
    micro_batches,
    training_worker,
    typed_configuration,
)

# Name, algorithm, value of one response's advantages (None: as it was).
UPDATES = (
    ("sound", "tr_grpo", None),
    ("grpo", "grpo", math.nan),
    ("after", "grpo", None),
    ("tr_grpo", "tr_grpo", math.nan),
)
LEARNING_RATE = "actor_rollout_ref.actor.optim.lr=1e-3"


def update(worker: Any, model: Path, batch: dict[str, list[torch.Tensor]], algorithm: str) -> dict[str, float]:
    """The metrics of one update of the whole batch, as veRL's trainer asks for it."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.utils.metric import reduce_metrics
    from verl.workers import engine_workers

    nested = {name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in batch.items()}
    data = TensorDict(nested, batch_size=ROWS)
    tu.assign_non_tensor(
        data, calculate_entropy=False, global_batch_size=ROWS, mini_batch_size=ROWS, epochs=1,
        dataloader_kwargs={"shuffle": False}, temperature=1.0, **micro_batches(4),
    )  # fmt: skip
    _, actor = typed_configuration(model, f"algorithm={algorithm}")
    worker.set_loss_fn(functools.partial(engine_workers.ppo_loss, config=actor))
    return reduce_metrics(tu.get(worker.train_mini_batch(data), "metrics"))


def weights(worker: Any) -> torch.Tensor:
    """All parameters in one vector."""
    parameters = worker.engine.module.parameters()
    return torch.cat([getattr(p, "full_tensor", lambda p=p: p)().detach().flatten().clone() for p in parameters])


def main() -> None:
    model, out = Path(sys.argv[1]), Path(sys.argv[2])
    batch = make_batch(model)
    worker = training_worker(model, (LEARNING_RATE,))
    found = {}
    for name, algorithm, value in UPDATES:
        before, error, metrics = weights(worker), "", {}
        asked = dict(batch)
        if value is not None:
            asked["advantages"] = [torch.full_like(batch["advantages"][0], value), *batch["advantages"][1:]]
        try:
            metrics = update(worker, model, asked, algorithm)
        except ValueError as problem:
            error = str(problem)
        moved = (weights(worker) - before).abs().max().item()
        found[name] = {"moved": moved, "error": error, "grad_norm": float(metrics.get("grad_norm", 0.0))}
    out.write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
