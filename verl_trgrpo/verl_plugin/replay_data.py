"""Read and write columns of veRL's replay data: the one place that knows its store, TransferQueue (see RFC 7414 of veRL)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transfer_queue
from tensordict import NonTensorStack, TensorDict


def fetch(batch: Any, fields: Sequence[str]) -> TensorDict:
    """Return those of some fields that the store has for a batch (veRL's ``KVBatchMeta``), one value for each key."""
    return transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(fields))


def put_column(batch: Any, field: str, column: torch.Tensor | NonTensorStack) -> None:
    """Put a column into the store, one value for each response of a batch."""
    fields = TensorDict({field: column}, batch_size=len(batch.keys))
    transfer_queue.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)
