"""Find weights that are not finite in a model's files, before they are trained, evaluated or published."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_trgrpo.common.foreign import ForeignFileError, open_foreign, real_path
from verl_trgrpo.common.text import count_of, escape_controls, first_line, shorten
from verl_trgrpo.common.typed import Schema, Text, read_typed

if TYPE_CHECKING:  # takes seconds to import
    import torch

NOT_WEIGHTS = re.compile(
    r"(training_args|optimizer)\.bin|(optimizer|scheduler|scaler)\.pt|rng_state(_\d+)?\.pth"
    r"|(optim|extra_state)_world_size_\d+_rank_\d+\.pt"
)
"""Names of a trainer's other files, which no loader takes for weights; some are pickles of objects."""
MOST_FLOAT16, MOST_BFLOAT16, MOST_FLOAT32 = 65504.0, 255 * 2.0**120, (2 - 2.0**-23) * 2.0**127
"""Largest finite numbers of the types that weights are loaded in."""
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_PIECE = 1 << 24  # values at a time
# Bytes of a file of torch before 1.6, which cannot be mapped into memory.
_MOST_UNMAPPED = 8 << 30
# Times that the values of a file may be found in tensors, of which some share them (tied weights).
_MOST_SHARED = 4


class _Index(Schema):
    """``*.index.json``: the file of each tensor."""

    weight_map: dict[Text, Text] | None = None


class _Described(Schema):
    """The keys of a model's ``config.json`` that decide what its weights are loaded from, and as."""

    dtype: Text | None = None
    torch_dtype: Text | None = None
    text_config: dict[Text, Any] | None = None
    transformers_weights: Text | None = None


def weight_files(directory: Path) -> tuple[list[Path], list[ForeignFileError]]:
    """Return the files that a loader may take for weights, also those that an index names; and what cannot be read of indices."""
    found, problems = {file for pattern in _WEIGHTS for file in directory.glob(pattern)}, list[ForeignFileError]()
    try:
        indices, own = {*directory.glob("*.index.json")}, _described(directory).transformers_weights
        if own:
            (indices if own.endswith(".index.json") else found).update(
                _within(directory, [own], directory / "config.json")
            )
        for index in sorted(indices):
            found |= _within(directory, (read_typed(index, _Index).weight_map or {}).values(), index)
    except ForeignFileError as error:
        problems.append(error)
    return sorted(file for file in found if not NOT_WEIGHTS.fullmatch(file.name)), problems


def _described(directory: Path) -> _Described:
    return read_typed(directory / "config.json", _Described)


def _within(directory: Path, names: Iterable[str], named_by: Path) -> set[Path]:
    """Return those files of a directory that another file names and that exist: copies often leave one format out."""
    names = set(names)
    if outside := [name for name in names if Path(name).is_absolute() or ".." in Path(name).parts]:
        raise ForeignFileError(
            f"{named_by}: names weights in another directory ({shorten(outside[0], 60)}); correct the entry"
        )
    return {directory / name for name in names if os.path.lexists(directory / name)}


def parameter_count(directory: Path) -> int:
    """Return the number of parameters of a model in safetensors files, from their headers alone; 0 for other files."""
    found, unreadable = weight_files(directory)
    if unreadable or any(file.suffix != ".safetensors" for file in found):
        return 0
    count = 0
    for file in found:
        with _opened(real_path(file)) as opened:
            count += sum(math.prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118
    return count


def largest_loaded(directory: Path) -> float:
    """Return the largest finite number of the type that engines load a model's weights in: float16 if it says so, else bfloat16.

    Raises:
        ForeignFileError: its config.json is damaged.
    """
    own = _described(directory)
    named = {own.dtype, own.torch_dtype, *((own.text_config or {}).get(key) for key in ("dtype", "torch_dtype"))}
    return MOST_FLOAT16 if {"float16", "half", "torch.float16"} & named else MOST_BFLOAT16


def broken_weights(directory: Path, largest: float = MOST_FLOAT32) -> str:
    """Return where the weights of a directory are NaN or infinite, its first file and tensor; empty where all are finite.

    Shards of veRL and files of ``torch.save`` are read as data: nothing that they name is executed. Files are mapped and read
    in pieces, so that it takes little memory. Files that cannot be read do not keep the others from being searched.

    Args:
        directory: of a model, or of veRL's shards.
        largest: magnitude from which on a number becomes infinite in the type that it is loaded in.

    Raises:
        ForeignFileError: a file cannot be read in this way, and all that can be read is finite.
    """
    first, tensors = "", 0
    files, unread = weight_files(directory)
    for file in files:
        try:
            open_foreign(real_path(file) if file.parent == directory else file).close()
            for name, count in _broken_tensors(file, largest):
                tensors += 1
                verb = "is" if count == 1 else "are"
                first = (
                    first or f"{file}: {escape_controls(name)} has {count_of(count, 'value')} that {verb} not finite"
                )
        except ForeignFileError as error:
            unread.append(error)
        except Exception as error:  # damaged, or with objects that are not tensors
            reason = f"{file} was not searched for weights that are not finite ({first_line(error)}); restore or remove the file"
            unread.append(ForeignFileError(reason))
    if unread and not first:
        raise unread[0]
    return first + (f", and so have {count_of(tensors - 1, 'other tensor')}" if tensors > 1 else "")


def _broken_tensors(file: Path, largest: float) -> Iterator[tuple[str, int]]:
    for name, pieces in (_of_safetensors if file.suffix == ".safetensors" else _of_torch)(file):
        if count := sum(_broken(piece, largest) for piece in pieces):
            yield name, count


def _broken(piece: torch.Tensor, largest: float) -> int:
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
    most = min(largest, torch.finfo(piece.dtype).max)
    low, high = map(float, torch.aminmax(piece))
    if -most <= low and high <= most:
        return 0
    return int((~(piece.abs() <= most)).sum())


def _opened(file: Path) -> Any:
    from safetensors import safe_open

    return safe_open(file, "pt")


def _of_safetensors(file: Path) -> Iterator[tuple[str, Iterator[torch.Tensor]]]:
    with _opened(file) as opened:
        for name in opened.keys():  # noqa: SIM118  # it is not a dictionary
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
        mapped = _begins_as_zip(file)
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    left = _MOST_SHARED * file.stat().st_size
    for name, value in _tensors(content):
        own = value.to_local() if isinstance(value, DTensor) else value
        size = own.numel() * own.element_size()
        left -= size
        if size > own.untyped_storage().nbytes() or left < 0:
            raise ValueError(f"{escape_controls(name)} has more values than are stored")
        yield name, iter(own.detach().reshape(-1).split(_PIECE))


def _begins_as_zip(file: Path) -> bool:
    """Return whether a file is of torch 1.6 or later; older ones are read into memory."""
    with open_foreign(real_path(file)) as opened:
        zipped = opened.read(4) == b"PK\x03\x04"
        size = opened.seek(0, 2)
    if not zipped and size > _MOST_UNMAPPED:
        raise ValueError("it is in a format of torch before 1.6, and too large to read at once")
    return zipped


def _tensors(content: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield all tensors of nested containers, which may hold themselves, with their names."""
    import torch

    waiting, seen = [("", content)], set[int]()
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += reversed([(f"{name}.{key}" if name else str(key), one) for key, one in inner])
