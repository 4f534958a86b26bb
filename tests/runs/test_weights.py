"""Weights that are not finite are found in every tensor, at every place, in every type of number and kind of file."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from verl_trgrpo.common.foreign import ForeignFileError
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.evaluation.checkpoint import export, fingerprint, merged_model
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
        largest = 1.0 if dtype.is_complex else min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)
        clean = torch.full((7,), largest, dtype=torch.float64).to(dtype) if values else torch.zeros(7)
        KINDS[file]({"w": clean}, tmp_path / file)
    except (KeyError, RuntimeError, NotImplementedError):
        assert dtype not in usual
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
    with pytest.raises(ForeignFileError, match="not a regular file"):
        broken_weights(tmp_path)


class Arguments:
    """An object, as trainers pickle theirs."""


def object_in(path):
    torch.save({"o": Arguments()}, path)


UNREAD = {"a_pickle.bin": object_in, "z.bin": lambda path: path.write_bytes(b"garbage"), "a.index.json": lambda path:
          path.write_text('{"weight_map": {"w": "../model.safetensors"}}'), "config.json": lambda path:
          path.write_text('{"transformers_weights": "/model.safetensors"}'), "repeated.pt": lambda path:
          torch.save({"w": torch.zeros(1).as_strided((1 << 38,), (0,))}, path), "shared.bin": lambda path:
          torch.save(many_views(), path), "sparse.bin": lambda path:
          torch.save({"w": torch.eye(3).to_sparse()}, path)}  # fmt: skip


def many_views():
    whole = torch.zeros(100_000)
    return {f"v{i}": whole[i:] for i in range(20)}


@pytest.mark.parametrize("name", UNREAD)
def test_a_file_that_cannot_be_read_hides_no_other_and_is_refused(tmp_path, name):
    UNREAD[name](tmp_path / name)
    with pytest.raises(ForeignFileError):
        broken_weights(tmp_path)
    for other in KINDS:
        KINDS[other]({"w": torch.tensor([float("nan")])}, tmp_path / other)
        assert f"{other}: w has 1 value" in broken_weights(tmp_path)
        (tmp_path / other).unlink()


OTHERS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth",
          "rng_state_3.pth", "optim_world_size_2_rank_0.pt", "extra_state_world_size_2_rank_1.pt")  # fmt: skip


def planted(model, write=save_file, dtype=torch.float32, value=float("nan"), name="model.safetensors"):
    """Write the demo's weights with one of another value."""
    tensors = {key: tensor.to(dtype) for key, tensor in load_file(CHECKPOINT / "model.safetensors").items()}
    next(iter(tensors.values())).view(-1)[0] = value
    (model / name).parent.mkdir(exist_ok=True)
    write(tensors, model / name)
    return dict.fromkeys(tensors, name)


def legacy(tensors, path):
    torch.save(tensors, path, _use_new_zipfile_serialization=False)


def named_by_index(model):
    names = planted(model, name="sub/part.safetensors")
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def named_by_config(model):
    planted(model, name="sub/own.safetensors")
    content = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(content | {"transformers_weights": "sub/own.safetensors"}))


def as_float16(model):
    planted(model, value=70_000.0)
    content = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(content | {"dtype": "float16"}))


LAYOUTS = {
    "legacy": lambda model: planted(model, legacy, name="pytorch_model.bin"),
    "nested": lambda model: planted(model, lambda tensors, path: torch.save([{"m": tensors}], path), name="w.pt"),
    "index": named_by_index,
    "config": named_by_config,
    "float64": lambda model: planted(model, dtype=torch.float64, value=1e300),
    "beyond bfloat16": lambda model: planted(model, value=3.4028e38),
    "beyond float16": as_float16,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_that_loaders_take_is_searched_for_what_they_load_it_as(tmp_path, layout):
    model = shutil.copytree(CHECKPOINT, tmp_path / "model")
    for name in OTHERS:
        object_in(model / name)
    assert merged_model(str(model), tmp_path) == str(model)
    (model / "model.safetensors").unlink()
    LAYOUTS[layout](model)
    with pytest.raises(ValueError, match="has 1 value that is not finite"):
        merged_model(str(model), tmp_path)


def test_a_model_that_was_merged_before_is_searched_again(tmp_path):
    shards = tmp_path / "actor"
    shards.mkdir()
    (shards / "fsdp_config.json").write_text("{}")
    merged = shutil.copytree(CHECKPOINT, tmp_path / "merged_hf")
    (merged / "merged_from.json").write_text(json.dumps(fingerprint(str(shards))))
    assert merged_model(str(shards), tmp_path) == str(merged)
    planted(merged)
    with pytest.raises(ValueError, match=f"{merged}.* has 1 value that is not finite"):
        merged_model(str(shards), tmp_path)


def test_files_of_a_trainer_are_not_published(tmp_path):
    model = shutil.copytree(CHECKPOINT, tmp_path / "run" / "global_step_2" / "actor" / "huggingface")
    for name in OTHERS:
        object_in(model / name)
    export(tmp_path / "run", tmp_path / "out")
    published = {path.name for path in (tmp_path / "out").iterdir()}
    assert "model.safetensors" in published and not published & set(OTHERS)


@pytest.mark.parametrize("command", ["export", "eval"])
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
