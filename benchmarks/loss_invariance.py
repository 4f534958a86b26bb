"""How much a loss depends on the way its batch is cut up: ranks, micro-batches, dynamic batches, the model's own options.

Every update goes through veRL's training worker, FSDP2 engine and ppo_loss, in fp32 on the CPU (gloo), with the shipped
tiny model. The reference is one rank with the whole batch in one micro-batch.

    python benchmarks/loss_invariance.py
    python benchmarks/loss_invariance.py --only token-mean
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # shares its worker with a test
from tests.verl_plugin.cpu.invariance_worker import (
    ROWS,
    Case,
    Update,
    make_batch,
    micro_batches,
    run_ranks,
    token_budget,
)
from verl_trgrpo.tiny.puzzles import CHECKPOINT

ACTOR = "actor_rollout_ref.actor"
TR_GRPO = ("algorithm=tr_grpo",)
LOSSES: dict[str, tuple[str, ...]] = {
    "tr_grpo, token-mean": TR_GRPO,
    "tr_grpo, seq-mean-token-mean": (*TR_GRPO, f"{ACTOR}.loss_agg_mode=seq-mean-token-mean"),
    "tr_grpo, seq-mean-token-sum": (*TR_GRPO, f"{ACTOR}.loss_agg_mode=seq-mean-token-sum"),
    "tr_grpo, kl scaled, token-mean": (
        *TR_GRPO,
        f"{ACTOR}.policy_loss.kl=scaled",
        f"{ACTOR}.use_kl_loss=true",
        f"{ACTOR}.kl_loss_coef=0.1",
    ),
    "grpo, token-mean": ("algorithm=grpo",),
    "grpo, seq-mean-token-mean": ("algorithm=grpo", f"{ACTOR}.loss_agg_mode=seq-mean-token-mean"),
    "dr_grpo, loss_scale_factor 176": ("algorithm=dr_grpo", f"{ACTOR}.loss_scale_factor=176"),
    "dr_grpo, seq-mean-token-sum-norm": ("algorithm=dr_grpo", f"{ACTOR}.loss_scale_factor=null"),
    "tr_grpo, normalize token_mean": (*TR_GRPO, f"{ACTOR}.policy_loss.normalize=token_mean"),
}
LAYOUTS = {
    "micro-batch 1": micro_batches(1),
    "micro-batch 4": micro_batches(4),
    "micro-batch 8": micro_batches(8),
    "at most 300 tokens": token_budget(300),
}
MODEL = "actor_rollout_ref.model"
MODELS: dict[str, tuple[str, ...]] = {
    "gradient checkpointing": (f"{MODEL}.enable_gradient_checkpointing=true",),
    "remove padding": (f"{MODEL}.use_remove_padding=true",),
}
LORA = (f"{MODEL}.lora_rank=8", f"{MODEL}.lora_alpha=16")


@dataclass(frozen=True)
class Difference:
    """How far an update is from the reference; relative, but for the metrics."""

    loss: float
    grad_norm: float
    gradient: float
    regulation: float
    host: float

    @staticmethod
    def of(update: Update, reference: Update) -> Difference:
        """Differences of loss, gradient norm, the gradient itself, our metrics (tr_*) and veRL's (pg_clipfrac, ppo_kl)."""
        found, wanted = update.metrics, reference.metrics
        metrics = {name: abs(found[name] - wanted[name]) for name in wanted if name.startswith("actor/")}
        return Difference(
            abs(found["loss"] / wanted["loss"] - 1),
            abs(found["grad_norm"] / wanted["grad_norm"] - 1),
            float((update.gradient - reference.gradient).norm() / reference.gradient.norm()),
            max([value for name, value in metrics.items() if name.startswith("actor/tr_")], default=0.0),
            max(metrics["actor/pg_clipfrac"], metrics["actor/ppo_kl"]),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only losses and models whose name contains TEXT")
    arguments = parser.parse_args()
    whole = micro_batches(ROWS)
    losses = {name: loss for name, loss in LOSSES.items() if arguments.only in name}
    references = {name: Case(loss, whole) for name, loss in losses.items()}
    references |= {"LoRA, rank 8": Case(TR_GRPO, whole, LORA)} if arguments.only in "LoRA, rank 8" else {}
    rows: list[tuple[str, int, str, Case, str]] = []  # name, ranks, layout, case, reference
    for name, case in references.items():
        rows += [
            (name, ranks, layout, Case(case.loss, cut, case.model), name)
            for ranks in (1, 2)
            for layout, cut in LAYOUTS.items()
        ]
    if "tr_grpo, token-mean" in references:
        rows += [
            (name, ranks, "micro-batch 4", Case(TR_GRPO, LAYOUTS["micro-batch 4"], model), "tr_grpo, token-mean")
            for name, model in MODELS.items()
            for ranks in (1, 2)
            if arguments.only in name or not arguments.only
        ]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        torch.save(make_batch(CHECKPOINT), directory / "batch.pt")
        one = [row for row in rows if row[1] == 1]
        two = [row for row in rows if row[1] == 2]
        found = run_ranks(directory, CHECKPOINT, [*references.values(), *(row[3] for row in one)], 1)
        wanted = dict(zip(references, found, strict=False))
        updates = found[len(references) :] + run_ranks(directory, CHECKPOINT, [row[3] for row in two], 2)
    print(f"{'':34}{'ranks':7}{'layout':21}{'loss':10}{'grad_norm':11}{'gradient':10}{'tr_*':10}pg_clipfrac, ppo_kl")
    for (name, ranks, layout, _, reference), update in zip(one + two, updates, strict=True):
        d = Difference.of(update, wanted[reference])
        print(
            f"{name:34}{ranks:<7}{layout:21}{d.loss:<10.1e}{d.grad_norm:<11.1e}{d.gradient:<10.1e}"
            f"{d.regulation:<10.1e}{d.host:.1e}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
