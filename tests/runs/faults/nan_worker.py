"""Updates with sound and with broken advantages through veRL's own training worker, for ``test_nan_training.py``.

``python -m tests.runs.faults.nan_worker OUT`` writes to ``OUT`` (JSON) what each of :data:`UPDATES` did to the weights.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch

from tests.verl_plugin.cpu.invariance_worker import ROWS, Batch, asked, loss_function, make_batch, training_worker

# Name, algorithm, value of one response's advantages (None: as it was).
UPDATES = (
    ("sound", "tr_grpo", None),
    ("grpo", "grpo", math.nan),
    ("after", "grpo", None),
    ("tr_grpo", "tr_grpo", math.nan),
)
LEARNING_RATE = "actor_rollout_ref.actor.optim.lr=1e-3"


def update(worker: Any, batch: Batch, algorithm: str) -> dict[str, float]:
    """The metrics of one update of the whole batch."""
    from verl.utils import tensordict_utils as tu
    from verl.utils.metric import reduce_metrics

    worker.set_loss_fn(loss_function(f"algorithm={algorithm}"))
    return reduce_metrics(tu.get(worker.train_mini_batch(asked(batch, slice(0, ROWS), ROWS, 4)), "metrics"))


def weights(worker: Any) -> torch.Tensor:
    """All parameters in one vector."""
    parameters = worker.engine.module.parameters()
    return torch.cat([getattr(p, "full_tensor", lambda p=p: p)().detach().flatten().clone() for p in parameters])


def main() -> None:
    batch = make_batch()
    worker = training_worker((LEARNING_RATE,))
    found = {}
    for name, algorithm, value in UPDATES:
        before, error, metrics = weights(worker), "", {}
        changed = dict(batch)
        if value is not None:
            changed["advantages"] = [torch.full_like(batch["advantages"][0], value), *batch["advantages"][1:]]
        try:
            metrics = update(worker, changed, algorithm)
        except ValueError as problem:
            error = str(problem)
        moved = (weights(worker) - before).abs().max().item()
        found[name] = {"moved": moved, "error": error, "grad_norm": float(metrics.get("grad_norm", 0.0))}
    Path(sys.argv[1]).write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
