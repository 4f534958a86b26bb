"""Weights that are not finite are found in every tensor, at every place, in every type of number and kind of file."""

import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from verl_trgrpo.common.foreign import ForeignFileError
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.runs import weights
from verl_trgrpo.runs.weights import broken_weights

FLOATS = [value for value in vars(torch).values() if isinstance(value, torch.dtype) and value.is_floating_point]


def write_torch(tensors, path):
    torch.save(dict(tensors), path)


KINDS = {"model.safetensors": save_file, "pytorch_model.bin": write_torch, "model_world_size_1_rank_0.pt": write_torch}


def holds(dtype, value):
    """Whether numbers of a type can be `value`; some are integers in disguise and some have no infinity."""
    try:
        found = torch.tensor([value]).to(dtype).float()
    except (RuntimeError, NotImplementedError, TypeError):
        return False
    return not bool(found.isfinite())


@pytest.mark.parametrize("file", KINDS)
def test_every_tensor_of_a_model_is_searched_at_both_ends_and_between(tmp_path, monkeypatch, file):
    monkeypatch.setattr(weights, "_PIECE", 1000)  # several pieces in all but the smallest
    tensors = load_file(CHECKPOINT / "model.safetensors")
    KINDS[file](tensors, tmp_path / file)
    assert len(tensors) > 10 and broken_weights(tmp_path) == ""
    for name, tensor in tensors.items():
        ends = {0: float("nan"), tensor.numel() - 1: float("-inf")}
        for place, value in ({tensor.numel() // 2: float("inf")} | ends).items():
            planted = tensor.clone()
            planted.view(-1)[place] = value
            KINDS[file](tensors | {name: planted}, tmp_path / file)
            assert broken_weights(tmp_path) == f"{tmp_path / file}: {name} has 1 value that is not finite"


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64], ids=str)
@pytest.mark.parametrize("file", KINDS)
def test_every_type_of_number_is_searched(tmp_path, file, dtype):
    values = [value for value in (float("nan"), float("inf"), float("-inf")) if holds(dtype, value)]
    usual = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    assert len(values) == 3 or dtype not in usual
    try:
        largest = 1.0 if dtype.is_complex else torch.finfo(dtype).max
        clean = torch.full((7,), largest, dtype=torch.float64).to(dtype) if values else torch.zeros(7)
        KINDS[file]({"w": clean}, tmp_path / file)
    except (KeyError, RuntimeError, NotImplementedError):
        pytest.skip("no such file can be written")
    assert broken_weights(tmp_path) == "", "the largest number is finite, and so is a sum of them"
    for value in values:
        planted = torch.zeros(7).to(torch.float32)
        planted[3:5] = value
        KINDS[file]({"w": planted.to(dtype), "n": torch.arange(3), "none": torch.zeros(0, 2)}, tmp_path / file)
        assert "w has 2 values that are not finite" in broken_weights(tmp_path)


def test_shapes_without_rows_and_several_tensors(tmp_path):
    tensors = {
        "scalar": torch.tensor(float("nan")),
        "b": torch.full((2, 0, 3), 1.0),
        "c": torch.full((3, 2), float("inf")),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    found = broken_weights(tmp_path)
    assert found.startswith(f"{tmp_path}/model.safetensors: ") and found.endswith(", and so have 1 other tensor")


def test_a_file_that_is_not_read_is_an_error_and_runs_nothing(tmp_path):
    class Program:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    path = tmp_path / "model_world_size_1_rank_0.pt"
    torch.save({"w": Program()}, path)
    with pytest.raises(ForeignFileError, match=f"{path} was not searched"):
        broken_weights(tmp_path)
    assert not (tmp_path / "ran").exists()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ForeignFileError, match="no regular file"):
        broken_weights(tmp_path)


@pytest.mark.parametrize("command", ["export", "eval", "analyze"])
def test_no_command_uses_such_a_model(tmp_path, command, capfd):
    from verl_trgrpo.cli.main import main

    model = tmp_path / "run" / "global_step_2" / "actor" / "huggingface"
    shutil.copytree(CHECKPOINT, model)
    tensors = load_file(model / "model.safetensors")
    name, tensor = next(iter(tensors.items()))
    tensor.view(-1)[0] = float("nan")
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        '{"data_source": "math", "prompt": [{"role": "user", "content": "1?"}], "reward_model": {"ground_truth": "1"}}'
    )
    more = [tmp_path / "run"] if command == "export" else ["--model", tmp_path / "run", "--data", rows]
    words = [command, *more, "--out", tmp_path / "out"]
    assert main([str(word) for word in words]) == 2
    said = capfd.readouterr().err
    assert f"model.safetensors: {name} has 1 value that is not finite" in said and "Traceback" not in said
