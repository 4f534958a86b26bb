"""Updates of the tiny model through veRL's worker and engine, in fp32: every algorithm, one of them cut in many ways, and NaN.

A loss and its gradient do not depend on ranks, micro-batches or dynamic batches. A NaN does not reach the weights.
"""

import math

import pytest
import torch

from tests.core.reference import aggregate, published_weight, token_loss, token_slope
from tests.demos.models import load
from tests.verl_plugin.cpu.invariance_worker import ROWS, Case, Update, log_probs_of, make_batch, run_ranks
from tests.verl_plugin.test_registration import ALGORITHMS
from verl_trgrpo.demos.puzzles import CHECKPOINT

ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"
TR_GRPO = ("algorithm=tr_grpo",)
KL = (*TR_GRPO, f"{ACTOR}.policy_loss.kl=scaled", f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.kl_loss_coef=1",
      f"{ACTOR}.loss_agg_mode=seq-mean-token-mean")  # fmt: skip
GSPO = ("algorithm=gspo", "shaping=sigmoid")
GMPO = ("algorithm=gmpo",)
TOKEN_MEAN = (*TR_GRPO, f"{ACTOR}.policy_loss.normalize=token_mean")
# With transformers' attention, and the output layer for prompts, too.
PADDED = (f"{MODEL}.use_remove_padding=false", f"{MODEL}.override_config.attn_implementation=sdpa")
BONUS = 0.1
ENTROPY = (*TR_GRPO, f"{ACTOR}.entropy_coeff={BONUS}", f"{ACTOR}.calculate_entropy=true")
RECOMPUTED = (f"{MODEL}.enable_gradient_checkpointing=true",)
LORA = (f"{MODEL}.lora_rank=8", f"{MODEL}.lora_alpha=16")

REFERENCES = {
    "tr_grpo": Case(TR_GRPO, ROWS),
    "kl": Case(KL, ROWS),
    "gspo": Case(GSPO, ROWS),
    "gmpo": Case(GMPO, ROWS),
    "gmpo, two micro-batches": Case(GMPO, ROWS // 2),
    "token_mean": Case(TOKEN_MEAN, ROWS),
    "first half": Case(TR_GRPO, 8, rows=(0, 8)),
    "second half": Case(TR_GRPO, 8, rows=(8, ROWS)),
    "token_mean, micro-batches of 1": Case(TOKEN_MEAN, 1),
    "entropy": Case(ENTROPY, ROWS),
    "lora": Case(TR_GRPO, ROWS, LORA),
}
# What should make no difference, and which case of one rank and one micro-batch it is compared with.
SAME = {
    "micro-batches of 1": ("tr_grpo", Case(TR_GRPO, 1)),
    "dynamic batches": ("tr_grpo", Case(TR_GRPO, 300)),
    "KL, micro-batches of 4": ("kl", Case(KL, 4)),
    "GSPO with weights, micro-batches of 4": ("gspo", Case(GSPO, 4)),
    "padded": ("tr_grpo", Case(TR_GRPO, 4, PADDED)),
    "padded, entropy": ("entropy", Case(ENTROPY, 4, PADDED)),
    "recomputed activations": ("tr_grpo", Case(TR_GRPO, 4, RECOMPUTED)),
    "LoRA": ("lora", Case(TR_GRPO, 4, LORA)),
}

# A reward that was NaN, at the place where it would reach the weights, and a sound update before and after it.
STEP = (f"{ACTOR}.optim.lr=1e-3",)
BROKEN = {
    "sound": Case(TR_GRPO, 4, STEP),
    "grpo, NaN": Case(("algorithm=grpo",), 4, STEP, broken=True),
    "after NaN": Case(("algorithm=grpo",), 4, STEP),
    "tr_grpo, NaN": Case(TR_GRPO, 4, STEP, broken=True),
}

# Two names for one thing.
TWINS = {"grpo_sg": "tr_grpo", "dapo": "dapo_clip"}
# Groups of four: all right, one right, three right, all wrong.
REWARDS = (1.0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0)


@pytest.fixture(scope="module")
def batch() -> dict[str, list[torch.Tensor]]:
    return make_batch()


@pytest.fixture(scope="module")
def references(batch) -> dict[str, Update]:
    """On one rank: every algorithm, and dynamic batches there, too. Models with LoRA, and those that learn, are the last ones."""
    words = [f"algorithm={name}" for name in ALGORITHMS]
    algorithms = {word: Case((word,), ROWS // 2, rewards=REWARDS) for word in words}
    cases = algorithms | {"dynamic batches": SAME["dynamic batches"][1]} | REFERENCES | BROKEN
    return dict(zip(cases, run_ranks(batch, list(cases.values()), 1), strict=True))


@pytest.fixture(scope="module")
def on_two_ranks(batch) -> dict[str, Update]:
    cases = {"GRPO, micro-batches of 1": Case(("algorithm=grpo",), 1)} | {cut: case for cut, (_, case) in SAME.items()}
    return dict(zip(cases, run_ranks(batch, list(cases.values()), 2), strict=True))


def gradient_distance(update: Update, reference: Update) -> float:
    return float((update.gradient - reference.gradient).norm() / reference.gradient.norm())


@pytest.mark.parametrize("cut", SAME)
def test_loss_and_gradient_do_not_depend_on_how_the_batch_is_cut(references, on_two_ranks, cut):
    """Nor on how the model is computed; LoRA's gradient is that of the adapters alone."""
    update, reference = on_two_ranks[cut], references[SAME[cut][0]]
    assert update.metrics["loss"] == pytest.approx(reference.metrics["loss"], rel=1e-6)
    assert update.metrics["grad_norm"] == pytest.approx(reference.metrics["grad_norm"], rel=5e-6)
    assert gradient_distance(update, reference) < 1e-5


def test_the_entropy_of_responses_reaches_the_loss(references):
    with_bonus, without = references["entropy"].metrics, references["tr_grpo"].metrics
    assert with_bonus["actor/entropy_loss"] > 0.01
    expected = without["loss"] - BONUS * with_bonus["actor/entropy_loss"]
    assert with_bonus["loss"] == pytest.approx(expected, abs=1e-6)


def test_the_engine_agrees_with_the_formula_in_float64(batch, references):
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
    found = references["tr_grpo"].metrics
    assert found["loss"] == pytest.approx(aggregate(losses, mask, "token-mean"), rel=1e-5)
    assert found["grad_norm"] == pytest.approx(norm, rel=1e-4)


def test_metrics_of_the_weights_are_exact_over_micro_batches_and_averaged_over_ranks(references, on_two_ranks):
    whole, halves = references["tr_grpo"].metrics, [references[f"{half} half"].metrics for half in ("first", "second")]
    names = [name for name in whole if name.startswith("actor/tr_")]
    assert len(names) == 8
    for name in names:
        assert references["dynamic batches"].metrics[name] == pytest.approx(whole[name], abs=1e-6)
        averaged = sum(half[name] for half in halves) / 2
        for cut in ("micro-batches of 1", "dynamic batches"):
            assert on_two_ranks[cut].metrics[name] == pytest.approx(averaged, abs=1e-6)


def test_weights_normalised_per_micro_batch_move_the_gradient_by_percents(references):
    """As documented of ``normalize: token_mean``; the largest effect is that of micro-batches of one response."""
    assert 1e-3 < gradient_distance(references["token_mean, micro-batches of 1"], references["token_mean"]) < 0.05


def test_gmpo_grows_with_the_number_of_micro_batches(references):
    """A fault of veRL, which adds up the means of micro-batches; ``validate`` warns. If this fails it is gone."""
    norms = [references[name].metrics["grad_norm"] for name in ("gmpo, two micro-batches", "gmpo")]
    assert norms[0] == pytest.approx(2 * norms[1], rel=0.1)


def test_weights_cost_no_communication_but_that_of_their_metrics(on_two_ranks):
    """The loss is local to a token: ranks exchange what they exchange for GRPO."""
    grpo, tr_grpo = (on_two_ranks[cut].traffic for cut in ("GRPO, micro-batches of 1", "micro-batches of 1"))
    assert {name: calls for name, (calls, _) in tr_grpo.items()} == {name: calls for name, (calls, _) in grpo.items()}
    assert grpo["_reduce_scatter_base_"][1] > 1e6, "gradients were not seen"
    more = {name: size - grpo[name][1] for name, (_, size) in tr_grpo.items() if size != grpo[name][1]}
    assert set(more) == {"allgather_"}, "only the metrics, which veRL gathers as pickled objects, are larger"
    assert more["allgather_"] < 10_000


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_changes_the_update_and_its_other_name_does_not(references, name):
    update, grpo, twin = (references[f"algorithm={one}"] for one in (name, "grpo", TWINS.get(name, name)))
    assert math.isfinite(update.metrics["loss"]) and 0 < update.metrics["grad_norm"] < math.inf
    assert name == "grpo" or gradient_distance(update, grpo) > 1e-3
    assert torch.equal(update.gradient, twin.gradient)


@pytest.fixture(scope="module")
def moved(references) -> dict[str, float]:
    """The largest change of a weight in each of the updates around a NaN."""
    before, found = dict(load(CHECKPOINT)[1].float().named_parameters()), {}
    for name in BROKEN:
        after = references[name].weights
        found[name] = max((after[key] - before[key]).abs().max().item() for key in after)
        before = after
    return found


def test_under_grpo_a_nan_skips_the_update_and_shows_in_the_gradients_norm(references, moved):
    assert moved["sound"] > 0 and math.isfinite(references["sound"].metrics["grad_norm"])
    assert moved["grpo, NaN"] == 0 and math.isnan(references["grpo, NaN"].metrics["grad_norm"])
    assert moved["after NaN"] > 0 and math.isfinite(references["after NaN"].metrics["grad_norm"])


def test_under_tr_grpo_a_nan_stops_the_run_with_a_reason(references, moved):
    assert "not finite: a reward was NaN or infinite" in references["tr_grpo, NaN"].error
    assert moved["tr_grpo, NaN"] == 0
