"""A loss and its gradient do not depend on ranks, micro-batches or dynamic batches: through veRL's engine, in fp32."""

import math

import pytest
import torch

from tests.core.reference import aggregate, published_weight, token_loss, token_slope
from tests.verl_plugin.cpu.invariance_worker import (
    ROWS,
    Case,
    Update,
    log_probs_of,
    make_batch,
    micro_batches,
    run_ranks,
    token_budget,
)
from verl_trgrpo.tiny.model import load
from verl_trgrpo.tiny.puzzles import CHECKPOINT

pytestmark = pytest.mark.slow

ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"
TR_GRPO = ("algorithm=tr_grpo",)
INVARIANT = {
    "tr_grpo": TR_GRPO,
    "tr_grpo-seq-mean-token-sum": (*TR_GRPO, f"{ACTOR}.loss_agg_mode=seq-mean-token-sum"),
    "tr_grpo-seq-mean-token-mean": (*TR_GRPO, f"{ACTOR}.loss_agg_mode=seq-mean-token-mean"),
    "tr_grpo-kl": (*TR_GRPO, f"{ACTOR}.policy_loss.kl=scaled", f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.kl_loss_coef=1"),
    "grpo": ("algorithm=grpo",),
    "grpo-seq-mean-token-mean": ("algorithm=grpo", f"{ACTOR}.loss_agg_mode=seq-mean-token-mean"),
    "dr_grpo-constant-divisor": ("algorithm=dr_grpo", f"{ACTOR}.loss_scale_factor=176"),
}
DEPENDENT = {
    "token_mean": (*TR_GRPO, f"{ACTOR}.policy_loss.normalize=token_mean"),
    "dr_grpo-length-divisor": ("algorithm=dr_grpo", f"{ACTOR}.loss_scale_factor=null"),
}
LAYOUTS = {"micro-1": micro_batches(1), "micro-4": micro_batches(4), "dynamic": token_budget(300)}
MODELS = {
    "checkpointing": (f"{MODEL}.enable_gradient_checkpointing=true",),
    "packed": (f"{MODEL}.use_remove_padding=true",),
    "lora": (f"{MODEL}.lora_rank=8", f"{MODEL}.lora_alpha=16"),
}
WHOLE = micro_batches(ROWS)
HALVES = ((0, ROWS // 2), (ROWS // 2, ROWS))


@pytest.fixture(scope="module")
def batch() -> dict[str, list[torch.Tensor]]:
    return make_batch(CHECKPOINT)


@pytest.fixture(scope="module")
def updates(batch, tmp_path_factory) -> dict[tuple, Update]:
    """By ranks, loss or model, and layout; one process for all cases of one rank, two for those of two."""
    directory = tmp_path_factory.mktemp("invariance")
    torch.save(batch, directory / "batch.pt")
    losses = INVARIANT | DEPENDENT
    cut = {(name, layout): Case(loss, LAYOUTS[layout]) for name, loss in losses.items() for layout in LAYOUTS}
    whole = {(name, "whole"): Case(loss, WHOLE) for name, loss in losses.items()}
    halves = {("tr_grpo", half): Case(TR_GRPO, micro_batches(8), rows=half) for half in HALVES}
    models = {(name, "micro-4"): Case(TR_GRPO, LAYOUTS["micro-4"], model) for name, model in MODELS.items()}
    lora = {("lora", "whole"): Case(TR_GRPO, WHOLE, MODELS["lora"])}
    asked = {1: whole | halves | cut | models | lora, 2: cut | models}
    return {
        (ranks, *key): update
        for ranks, cases in asked.items()
        for key, update in zip(cases, run_ranks(directory, CHECKPOINT, list(cases.values()), ranks), strict=True)
    }


def gradient_distance(update: Update, reference: Update) -> float:
    return float((update.gradient - reference.gradient).norm() / reference.gradient.norm())


def assert_same(update: Update, reference: Update) -> None:
    assert update.metrics["loss"] == pytest.approx(reference.metrics["loss"], rel=1e-6)
    assert update.metrics["grad_norm"] == pytest.approx(reference.metrics["grad_norm"], rel=5e-6)
    assert gradient_distance(update, reference) < 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("loss", INVARIANT)
def test_loss_and_gradient_do_not_depend_on_ranks_and_micro_batches(updates, loss, ranks, layout):
    assert_same(updates[ranks, loss, layout], updates[1, loss, "whole"])


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_loss_and_gradient_do_not_depend_on_how_the_model_is_computed(updates, model, ranks):
    """Recomputed activations, packed sequences; and LoRA, whose gradient is that of the adapters alone."""
    reference = updates[1, "lora" if model == "lora" else "tr_grpo", "whole"]
    assert_same(updates[ranks, model, "micro-4"], reference)


def test_the_engine_agrees_with_the_formula_in_float64(batch, updates):
    _, model = load(CHECKPOINT)
    model.double()
    losses: list[list[float]] = []
    surrogate = torch.zeros((), dtype=torch.float64)
    for row in range(ROWS):
        log_probs = log_probs_of(model, batch["input_ids"][row], len(batch["responses"][row]))
        columns = (log_probs.tolist(), batch["old_log_probs"][row].tolist(), batch["advantages"][row].tolist())
        # Clip range and dual-clip constant are veRL's defaults.
        tokens = [
            (*values, published_weight(math.exp(values[0])), 0.2, 0.2, 3.0) for values in zip(*columns, strict=True)
        ]
        losses.append([token_loss(*token) for token in tokens])
        slopes = torch.tensor([token_slope(*token) for token in tokens], dtype=torch.float64)
        surrogate = surrogate + (slopes * log_probs * batch["response_mask"][row]).sum()
    mask = [row.bool().tolist() for row in batch["response_mask"]]
    (surrogate / sum(map(sum, mask))).backward()
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm().item()
    found = updates[1, "tr_grpo", "whole"].metrics
    assert found["loss"] == pytest.approx(aggregate(losses, mask, "token-mean"), rel=1e-5)
    assert found["grad_norm"] == pytest.approx(norm, rel=1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_metrics_of_the_weights_are_exact_over_micro_batches_and_averaged_over_ranks(updates, layout):
    whole = updates[1, "tr_grpo", "whole"].metrics
    first, second = (updates[1, "tr_grpo", half].metrics for half in HALVES)
    names = [name for name in whole if name.startswith("actor/tr_")]
    assert len(names) == 8
    for name in names:
        assert updates[1, "tr_grpo", layout].metrics[name] == pytest.approx(whole[name], abs=1e-6)
        averaged = (first[name] + second[name]) / 2
        assert updates[2, "tr_grpo", layout].metrics[name] == pytest.approx(averaged, abs=1e-6)


@pytest.mark.parametrize("ranks", [1, 2])
def test_weights_normalised_per_micro_batch_move_the_gradient_by_percents(updates, ranks):
    """As documented of ``normalize: token_mean``; the largest effect is that of micro-batches of one response."""
    distances = [
        gradient_distance(updates[ranks, "token_mean", layout], updates[1, "token_mean", "whole"]) for layout in LAYOUTS
    ]
    assert 1e-3 < max(distances) == distances[0] < 0.05


def test_the_length_divisor_of_dr_grpo_is_that_of_the_micro_batch(updates):
    """veRL divides by the padded length of the micro-batch unless loss_scale_factor is set: other cuts, other losses."""
    apart = gradient_distance(
        updates[1, "dr_grpo-length-divisor", "micro-1"], updates[1, "dr_grpo-length-divisor", "whole"]
    )
    assert apart > 0.5
