"""Check this package on a GPU: losses, estimators and every algorithm against the processor, synchronisation, memory, trainings.

    make gpu-check                                  all that this environment can run; some fifteen minutes on one GPU
    python benchmarks/gpu_check.py --device cpu     the same on a machine without a GPU, to try the script; take few steps

Inputs are random tensors, the same on both devices. Gradients may differ by more than rounding at single tokens, where a
threshold of the algorithm lies between two roundings; at most one token in a thousand. Exit code: 0 all that ran passed, 1 a
check failed, 2 no GPU.
"""

from __future__ import annotations

import argparse
import copy
import functools
import importlib.util
import inspect
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from omegaconf import OmegaConf
from torch.overrides import TorchFunctionMode

ROOT = Path(__file__).parents[1]
SHAPE, MEMORY_SHAPE = (64, 1024), (64, 8192)
# Largest relative difference from the processor; veRL's own losses compute in the precision of their inputs.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
LARGEST_SHARE = 1e-3


class Row(NamedTuple):
    """A line of the table; ``ok`` is None for a check that could not run."""

    check: str
    found: str
    ok: bool | None


def random_batch(shape: tuple[int, int], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Return a micro-batch's tensors on the processor: groups of 8 responses of different lengths, off-policy."""
    generator = torch.Generator().manual_seed(0)
    old = -3 * torch.rand(shape, generator=generator) ** 4
    log_prob = (old + 0.2 * torch.randn(shape, generator=generator)).clamp(max=0)
    lengths = torch.randint(shape[1] // 8, shape[1], (shape[0], 1), generator=generator)
    rewards = (torch.rand(shape[0], generator=generator) < 0.4).float()
    found = {
        "old_log_prob": old,
        "log_prob": log_prob,
        "advantages": torch.randn(shape[0], 1, generator=generator).expand(shape).contiguous(),
        "entropy": 2 * torch.rand(shape, generator=generator) ** 2,
        "ref_log_prob": (old + 0.1 * torch.randn(shape, generator=generator)).clamp(max=0),
        "success_rate": rewards.view(-1, 8).mean(-1).repeat_interleave(8)[:, None].expand(shape).contiguous(),
    }
    mask = torch.arange(shape[1])[None] < lengths
    at_end = torch.zeros(shape).scatter(1, lengths - 1, rewards[:, None])
    return {name: x.to(dtype) for name, x in found.items()} | {"response_mask": mask, "rewards": at_end}


def algorithms() -> list[str]:
    """Return the words of ``algorithm=``."""
    return sorted(path.stem for path in (ROOT / "verl_trgrpo/config/algorithm").glob("*.yaml"))


class Algorithm:
    """A word's loss and estimator, as veRL would build them from the configuration."""

    def __init__(self, word: str) -> None:
        from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
        from verl.utils.config import omega_conf_to_dataclass

        from verl_trgrpo.core import TokenWeighting
        from verl_trgrpo.runs.compose import compose

        self.config = compose("trgrpo_trainer", [f"algorithm={word}"]).config
        actor = self.config.actor_rollout_ref.actor
        OmegaConf.update(actor, "ppo_micro_batch_size_per_gpu", 1)
        self.actor = omega_conf_to_dataclass(actor)
        self.loss = get_policy_loss_fn(self.actor.policy_loss.loss_mode)
        self.estimator = get_adv_estimator_fn(self.config.algorithm.adv_estimator)
        # As in a training: what the shaping asks for, and the entropy if the run computes it.
        weighting = self.actor.policy_loss
        asked = weighting.shaping.inputs if isinstance(weighting, TokenWeighting) else ()
        entropy = ("entropy",) if self.actor.calculate_entropy or self.actor.entropy_coeff else ()
        self.inputs = {*entropy, *asked} & {"entropy", "ref_log_prob", "success_rate"}

    def loss_and_gradient(self, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of a micro-batch and its gradient by the log-probabilities."""
        from verl_trgrpo.verl_plugin.actor import TOKEN_INPUTS

        object.__setattr__(self.actor, TOKEN_INPUTS, {name: batch[name] for name in self.inputs})
        torch.manual_seed(0)  # clip_cov draws tokens
        log_prob = batch["log_prob"].clone().requires_grad_()
        loss, _ = self.loss(
            batch["old_log_prob"], log_prob, batch["advantages"], batch["response_mask"], self.actor.loss_agg_mode, self.actor
        )  # fmt: skip
        loss.backward()
        return loss.detach(), log_prob.grad if log_prob.grad is not None else torch.zeros_like(log_prob)

    def advantages(self, batch: dict[str, torch.Tensor]) -> torch.Tensor | None:
        """Return the advantages of a batch's rewards; None if the estimator needs more of a batch than there is here."""
        from verl_trgrpo.verl_plugin.advantage_estimator import Estimator

        rewards = batch["rewards"]
        labels = np.repeat(np.arange(len(rewards) // 8), 8).astype(str)
        if isinstance(self.estimator, Estimator):
            self.estimator.state.clear()  # of the call for the other device
        given = {
            "token_level_rewards": rewards.clone(),
            "response_mask": batch["response_mask"].long(),  # as veRL's trainer hands it over
            "index": labels,
            "reward_baselines": rewards.sum(-1) / 2,
            "config": copy.deepcopy(self.config.algorithm),
        }
        asked = inspect.signature(self.estimator).parameters.values()
        named = {one.name for one in asked if one.kind is not inspect.Parameter.VAR_KEYWORD}
        if any(one.default is inspect.Parameter.empty and one.name not in given for one in asked if one.name in named):
            return None
        if len(named) == len(asked):
            given = {name: value for name, value in given.items() if name in named}
        return self.estimator(**given)[0]


@functools.cache
def algorithm(word: str) -> Algorithm:
    """Return a word's algorithm, composed once."""
    return Algorithm(word)


def difference(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> tuple[float, float]:
    """Return the largest difference, relative to the largest expected value, and the share of values beyond `tolerance`."""
    expected = expected.double()
    apart = (found.cpu().double() - expected).abs() / expected.abs().max().clamp(min=1e-30)
    apart = apart.nan_to_num(nan=math.inf)
    return apart.max().item(), (apart > tolerance).double().mean().item()


def compared(word: str, device: str) -> Iterator[Row]:
    """Compare a word's loss, gradient and advantages on the device with those on the processor."""
    try:
        one = algorithm(word)
        for dtype in TOLERANCE:
            yield compared_in(dtype, one, word, device)
    except Exception as error:  # of one word; the others are compared all the same
        yield Row(word, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", False)


def compared_in(dtype: torch.dtype, algorithm: Algorithm, word: str, device: str) -> Row:
    """Compare a word in one precision."""
    tolerance, batch = TOLERANCE[dtype], random_batch(SHAPE, dtype)
    there = {name: x.to(device) for name, x in batch.items()}
    loss, gradient = algorithm.loss_and_gradient(batch)
    their_loss, their_gradient = algorithm.loss_and_gradient(there)
    apart, _ = difference(their_loss, loss, tolerance)
    most, share = difference(their_gradient, gradient, tolerance)
    own = algorithm.advantages(batch)
    estimated = 0.0 if own is None else difference(algorithm.advantages(there), own, tolerance)[0]
    ok = apart <= 10 * tolerance and share <= LARGEST_SHARE and estimated <= TOLERANCE[torch.float32]
    advantages = "not compared" if own is None else f"{estimated:.0e}"
    found = f"loss {apart:.0e}, gradient {most:.0e} ({share:.1%} of tokens), advantages {advantages}"
    return Row(f"{word}, {str(dtype).removeprefix('torch.')}", found, ok and bool(torch.isfinite(loss)))


class HostReads(TorchFunctionMode):
    """Count the calls that would make the processor wait for a GPU: reading values, and sizes that depend on values."""

    READS = frozenset(
        {"item", "tolist", "cpu", "numpy", "nonzero", "masked_select", "__bool__", "__float__", "__int__"}
    )

    def __init__(self) -> None:
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        selects = name == "__getitem__" and getattr(args[1], "dtype", None) == torch.bool
        self.count += selects or name in self.READS
        return func(*args, **(kwargs or {}))


def synchronisations(call: Callable[[], Any], device: str) -> int:
    """Return how often a call makes the processor wait for the GPU: by torch's own count; without a GPU, by the calls."""
    call()  # what only the first call does does not count
    if not device.startswith("cuda"):
        with HostReads() as reads:
            call()
        return reads.count
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(one.message) for one in caught)


def peak_bytes(call: Callable[[], Any]) -> int:
    """Return the bytes by which a call's peak exceeds what is allocated before it."""
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def cost(device: str, words: Iterable[str]) -> Iterator[Row]:
    """Compare synchronisation, peak memory and time of this project's losses with those of veRL's vanilla loss.

    The bounds are those of ``tr_grpo``; the other words' memory is reported.
    """
    vanilla, ours = algorithm("grpo"), algorithm("tr_grpo")
    for dtype in TOLERANCE:
        batch = {name: x.to(device) for name, x in random_batch(MEMORY_SHAPE, dtype).items()}
        precision = str(dtype).removeprefix("torch.")

        def called(one: Algorithm, batch: dict[str, torch.Tensor] = batch) -> Callable[[], Any]:
            return lambda: one.loss_and_gradient(batch)

        theirs, own = (synchronisations(called(one), device) for one in (vanilla, ours))
        yield Row(f"synchronisations of the loss, {precision}", f"tr_grpo {own}, vanilla {theirs}", own <= theirs)
        if not device.startswith("cuda"):
            reason = "not run: it is CUDA's; benchmarks/bench_loss.py has the processor's"
            yield Row(f"peak memory of the loss, {precision}", reason, None)
            continue
        theirs = peak_bytes(called(vanilla))
        for word in words:
            one = algorithm(word)
            if one.actor.policy_loss.loss_mode not in ("tr_grpo", "aspo"):
                continue
            ratio = peak_bytes(called(one)) / theirs
            ok = ratio <= 1 if word == "tr_grpo" else None
            yield Row(f"peak memory of the loss, {precision}", f"{word} / vanilla {ratio:.3f}", ok)
        seconds = [device_seconds(called(one)) for one in (vanilla, ours)]
        yield Row(f"time of the loss, {precision}", f"tr_grpo / vanilla {seconds[1] / seconds[0]:.2f}", None)


def device_seconds(call: Callable[[], Any], repeats: int = 20) -> float:
    """Return the seconds of a call on a CUDA device, warm: the median of `repeats`."""
    found = []
    for _ in range(repeats + 3):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - started)
    return statistics.median(found[3:])


# What is shown of a training through veRL: name, unit, metric, digits. Medians over the steps after the first, which compiles.
PHASES = (
    ("step", "s", "timing_s/step", 2),
    ("sampling", "s", "timing_s/gen", 2),
    ("old log_prob", "s", "timing_s/old_log_prob", 2),
    ("update", "s", "timing_s/update_actor", 2),
    ("throughput", "tokens/s", "perf/throughput", 0),
    ("memory", "GiB", "actor/perf/max_memory_allocated_gb", 2),
    ("|p of rollout - p of trainer|", "", "training/rollout_probs_diff_mean", 6),
)


def logged_steps(directory: Path) -> list[dict[str, float]]:
    """Return the metrics of the training steps that a run logged."""
    lines = [json.loads(line) for path in directory.glob("metrics-*.jsonl") for line in path.read_text().splitlines()]
    return [line["data"] for line in lines if "actor/grad_norm" in line["data"]]


def training(name: str, command: list[str], run: Path, steps: int) -> Row:
    """Run a training in a process of its own; its steps have to be there, with finite gradients, not all zero."""
    started = time.perf_counter()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    seconds, logged = time.perf_counter() - started, logged_steps(run) if run.is_dir() else []
    norms = [step["actor/grad_norm"] for step in logged]
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        return Row(name, f"exit code {done.returncode}: {last[:200]}", False)
    ok = len(norms) == steps and all(map(math.isfinite, norms)) and max(norms) > 0
    return Row(name, f"{len(norms)} steps in {seconds:.0f} s, gradient norms up to {max(norms, default=0):.3g}", ok)


def phases(run: Path) -> dict[str, float]:
    """Return the median of each metric of `PHASES` that a run logged."""
    later = logged_steps(run)[1:]
    return {
        metric: statistics.median(step[metric] for step in later)
        for _, _, metric, _ in PHASES
        if later and all(metric in step for step in later)
    }


def shown_phases(found: dict[str, float]) -> str:
    """Return the figures of a run in one line."""
    return ", ".join(
        f"{name} {found[metric]:.{digits}f}{unit and f' {unit}'}"
        for name, unit, metric, digits in PHASES
        if metric in found
    )


def trained_through_verl(name: str, command: list[str], out: Path, steps: int, device: str) -> Iterator[Row]:
    """Train with GRPO and with TR-GRPO through veRL and vLLM; also yield times, memory and their ratios."""
    found = {}
    for algorithm in ("grpo", "tr_grpo"):
        run = out / f"{algorithm}-seed0"
        settings = [
            f"algorithm={algorithm}", f"trainer.total_training_steps={steps}", "trainer.test_freq=-1", "trainer.save_freq=-1",
            "trainer.val_before_train=false", "actor_rollout_ref.rollout.calculate_log_probs=true",
            "algorithm.rollout_correction.bypass_mode=false", *(["platform=cpu"] if device == "cpu" else []),
        ]  # fmt: skip
        row = training(f"{name}, {algorithm}", [sys.executable, "-m", *command, *settings], run, steps)
        yield row
        found[algorithm] = phases(run)
        if row.ok and found[algorithm]:
            yield Row(f"{name}, {algorithm}: medians", shown_phases(found[algorithm]), None)
    plain, weighted = found["grpo"], found["tr_grpo"]
    ratios = {metric: weighted[metric] / plain[metric] for metric in plain.keys() & weighted.keys() if plain[metric]}
    if ratios:
        text = ", ".join(f"{name} {ratios[metric]:.3f}" for name, _, metric, _ in PHASES if metric in ratios)
        yield Row(f"{name}: tr_grpo / grpo", text, None)


def trainings(device: str, steps: int, verl_steps: int, model_steps: int, directory: Path) -> Iterator[Row]:
    """Train the quickstart's model with the trainer of studies and through veRL, then SmolLM2 through veRL."""
    from verl_trgrpo.demos.puzzles import build_dataset

    if steps:
        build_dataset(directory / "puzzles", 0, {3: 64}, {3: 16})
        command = [
            sys.executable, "studies/trainer.py", "--train", f"{directory}/puzzles/train.parquet",
            "--out", f"{directory}/trainer", "--device", device, "--steps", str(steps), "--mini-prompts", "16", "--bf16",
        ]  # fmt: skip
        yield training("studies/trainer.py, bfloat16", command, directory / "trainer", steps)
    if importlib.util.find_spec("vllm") is None:
        yield Row("trainings through veRL", "not run: needs verl and vLLM", None)
        return
    if verl_steps:
        out = directory / "quickstart"
        command = ["verl_trgrpo", "quickstart", "--out", str(out)]
        yield from trained_through_verl("quickstart", command, out, verl_steps, device)
    if model_steps:
        out = directory / "small_lm"
        command = ["examples.small_lm", "--out", str(out)]
        yield from trained_through_verl("SmolLM2-135M", command, out / "word_problems", model_steps, device)


def machine(device: str) -> str:
    """Describe what the figures belong to."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "processor"
    return f"{name}, torch {torch.__version__}, Python {sys.version.split()[0]}, commit {commit.stdout.strip() or 'unknown'}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ..., or cpu to try the script")
    parser.add_argument("--words", nargs="*", default=algorithms(), help="algorithms to compare; default: all")
    parser.add_argument("--steps", type=int, default=10, help="of the trainer of studies; 0: not run")
    parser.add_argument(
        "--verl-steps", type=int, default=6, help="of the quickstart, with either algorithm; 0: not run"
    )
    parser.add_argument("--model-steps", type=int, default=10, help="of SmolLM2 (a wheel of 93 MB); 0: not run")
    options = parser.parse_args(argv)
    if options.device != "cpu" and not torch.cuda.is_available():
        print("no CUDA device: run this where torch sees a GPU, or try it with --device cpu", file=sys.stderr)
        return 2
    print(machine(options.device), flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        parts = [*(compared(word, options.device) for word in options.words), cost(options.device, options.words)]
        parts.append(trainings(options.device, options.steps, options.verl_steps, options.model_steps, Path(directory)))
        for row in (row for part in parts for row in part):
            state = {True: "ok", False: "FAIL", None: "-"}[row.ok]
            failed += row.ok is False
            print(f"{state:5} {row.check:45} {row.found}", flush=True)
    print(f"{failed} failed" if failed else "all that ran passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
