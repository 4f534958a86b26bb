"""Find weights that are not finite in a model's files, before they are trained, evaluated or published."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_trgrpo.common.foreign import ForeignFileError, open_foreign, real_path
from verl_trgrpo.common.text import count_of, escape_controls, first_line

if TYPE_CHECKING:  # takes seconds to import
    import torch

WEIGHTS = ("*.safetensors", "*.bin", "model_*.pt")
"""Files of weights; those of the optimizer do not matter to evaluation, and are often left out of copies."""
_PIECE = 1 << 24  # values at a time


def broken_weights(directory: Path) -> str:
    """Return where the weights of a directory are NaN or infinite, its first file and tensor; empty where all are finite.

    Shards of veRL and files of ``torch.save`` are read as data: nothing that they name is executed. Files are mapped and read
    in pieces, so that it takes little memory.

    Raises:
        ForeignFileError: a file cannot be read in this way.
    """
    files = sorted({file for pattern in WEIGHTS for file in directory.glob(pattern)})
    first, tensors = "", 0
    for file in files:
        open_foreign(real_path(file)).close()
        try:
            for name, count in _broken_tensors(file):
                tensors += 1
                verb = "is" if count == 1 else "are"
                first = (
                    first or f"{file}: {escape_controls(name)} has {count_of(count, 'value')} that {verb} not finite"
                )
        except Exception as error:  # damaged, or with objects that are not tensors
            raise ForeignFileError(
                f"{file} was not searched for weights that are not finite ({first_line(error)})"
            ) from error
    return first + (f", and so have {count_of(tensors - 1, 'other tensor')}" if tensors > 1 else "")


def _broken_tensors(file: Path) -> Iterator[tuple[str, int]]:
    for name, pieces in (_of_safetensors if file.suffix == ".safetensors" else _of_torch)(file):
        if count := sum(map(_broken, pieces)):
            yield name, count


def _broken(piece: torch.Tensor) -> int:
    """Return how many values are not finite; one pass over memory where all are."""
    import torch

    if piece.is_complex():
        piece = torch.view_as_real(piece)
    if not piece.is_floating_point() or not piece.numel():
        return 0
    if piece.element_size() == 1:
        if "float4" in str(piece.dtype):  # has no such values
            return 0
        piece = piece.float()
    if all(map(torch.isfinite, torch.aminmax(piece))):
        return 0
    return int((~torch.isfinite(piece)).sum())


def _of_safetensors(file: Path) -> Iterator[tuple[str, Iterator[torch.Tensor]]]:
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        for name in opened.keys():  # noqa: SIM118  # it is no dictionary
            yield name, _slices(opened, name)


def _slices(opened: Any, name: str) -> Iterator[torch.Tensor]:
    part = opened.get_slice(name)
    shape = part.get_shape()
    if not shape:
        yield opened.get_tensor(name)
        return
    values = 1
    for size in shape[1:]:
        values *= size
    rows = max(1, _PIECE // max(1, values))
    for start in range(0, shape[0], rows):
        yield part[start : start + rows]


def _of_torch(file: Path) -> Iterator[tuple[str, Iterator[torch.Tensor]]]:
    import torch
    from torch.distributed.tensor import DeviceMesh, DTensor, Replicate, Shard
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    # It warns that there are no process groups, which are not needed here.
    logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)
    with torch.serialization.safe_globals([DTensor, DeviceMesh, Shard, Replicate, DTensorSpec, TensorMeta]):
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    for name, value in content.items():
        if isinstance(value, torch.Tensor):
            own = value.to_local() if isinstance(value, DTensor) else value
            yield str(name), iter(own.detach().reshape(-1).split(_PIECE))
