"""The warm start: a LoRA adapter that teaches the form of an answer, and merging it into the model.

As it comes the model cannot be trained by reward: it hardly ever gives an answer in the form that the rewards read. The
adapters that ship with the package are made again, in some twenty minutes of two cores each, by

  python -m verl_trgrpo.small_lm.warm_start --base runs/small_lm/base --task word_problems --out DIR
  python -m verl_trgrpo.small_lm.warm_start --base runs/small_lm/base --task puzzles --out DIR \\
    --steps 250 --batch 8 --bf16
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from verl_trgrpo.common.files import file_sha256, staged_directory
from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.common.options import run_program
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.small_lm import TaskName
from verl_trgrpo.small_lm.model import check_base
from verl_trgrpo.small_lm.task import TASKS
from verl_trgrpo.tiny.training import NO_LABEL, Demonstration, encode, padded, summed_loss

ADAPTER_WEIGHTS = "adapter_model.safetensors"
# In the merged model's directory: sha256 of the adapter's weights.
ADAPTER_DIGEST = "adapter.sha256"

Example = tuple[list[int], list[int]]  # token ids and labels


@dataclass(frozen=True)
class WarmStartOptions:
    """How the adapter is trained.

    Args:
        base: directory of the model.
        out: directory for the adapter.
        task: whose demonstrations are learned.
        steps: updates.
        batch: demonstrations in an update.
        lr: learning rate of AdamW, which falls linearly to a twentieth.
        rank: of the adapter's matrices.
        seed: of order, wording, mistakes and initial weights.
        bf16: compute in bfloat16, with float32 weights.
        threads: CPU threads.
    """

    base: Path
    out: Path
    task: TaskName = "word_problems"
    steps: int = 150
    batch: int = 16
    lr: float = 1e-3
    rank: int = 8
    seed: int = 0
    bf16: bool = False
    threads: int = 2

    def __post_init__(self) -> None:
        ranges = dict.fromkeys(("steps", "batch", "rank", "threads"), "[1, inf)") | {"lr": "(0, inf)"}
        problems = range_errors(vars(self), ranges)
        if self.out.is_file():
            problems.append(f"--out {self.out} is a file; name a directory")
        raise_invalid(problems)


def train_adapter(
    demonstrations: Sequence[Demonstration], options: WarmStartOptions, progress: Progress = no_progress
) -> list[float]:
    """Train a LoRA adapter on demonstrations, at least one, and write it in bfloat16 and peft's format.

    Returns:
        the losses of the updates.
    """
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = AutoTokenizer.from_pretrained(options.base)
    model: Any = AutoModelForCausalLM.from_pretrained(options.base, dtype=torch.float32)
    lora = LoraConfig(r=options.rank, lora_alpha=2 * options.rank, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, options.steps)
    examples = [encode(tokenizer, demonstration) for demonstration in demonstrations]
    losses = []
    for batch in progress(_batches(examples, options), options.steps, "warm start"):
        ids, labels = padded(batch, tokenizer.pad_token_id)
        # Entered anew for each pass: its cache of cast weights outlives an optimizer step.
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
            loss = summed_loss(model.get_base_model(), ids, labels) / (labels != NO_LABEL).sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    # Where the base model happened to lie is nobody's business.
    model.peft_config["default"].base_model_name_or_path = "HuggingFaceTB/SmolLM2-135M-Instruct"
    with staged_directory(options.out) as stage:
        # Whether they changed would be asked of the hub.
        model.to(torch.bfloat16).save_pretrained(stage, save_embedding_layers=False)
        (stage / "README.md").unlink(missing_ok=True)  # peft's empty form of a model card
        # safetensors makes its file readable for its owner alone, which would not do in an installed package.
        (stage / ADAPTER_WEIGHTS).chmod(0o644)
    return losses


def _batches(examples: Sequence[Example], options: WarmStartOptions) -> Iterator[list[Example]]:
    """Examples of like length share a batch, to save padding; each occurs once before any occurs again."""
    rng = random.Random(options.seed)
    drawn: list[list[Example]] = []
    for _ in range(options.steps):
        if not drawn:
            ordered = sorted(rng.sample(examples, len(examples)), key=lambda example: len(example[0]))
            drawn = [ordered[i : i + options.batch] for i in range(0, len(ordered), options.batch)]
            rng.shuffle(drawn)
        yield drawn.pop()


def merge(base: Path, adapter: Path, out: Path) -> None:
    """Write the model of `base` with `adapter` merged into its weights, and its tokenizer, to `out`, and which adapter it was."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    merged: Any = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    with staged_directory(out) as stage:
        merged.save_pretrained(stage)
        AutoTokenizer.from_pretrained(base).save_pretrained(stage)
        (stage / ADAPTER_DIGEST).write_text(file_sha256(adapter / ADAPTER_WEIGHTS))


def main(argv: Sequence[str] | None = None) -> int:
    """Train an adapter with the words of a command line (None: of this process); returns the exit code of `run_program`."""
    return run_program(WarmStartOptions, _work, "python -m verl_trgrpo.small_lm.warm_start", __doc__ or "", argv)


def _work(options: WarmStartOptions, progress: Progress) -> str:
    check_base(options.base)
    losses = train_adapter(TASKS[options.task].demonstrations(options.seed), options, progress)
    return f"{options.out}: loss {losses[0]:.3f} to {losses[-1]:.3f}\n"


if __name__ == "__main__":
    sys.exit(main())
