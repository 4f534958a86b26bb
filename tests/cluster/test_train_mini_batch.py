"""Lopti through veRL's worker on one rank and on two, against a plain loop: same weights after the update, in fp32."""

import math

import pytest
import torch

from tests.demos.models import load
from tests.verl_plugin.cpu.invariance_worker import (
    ROWS,
    Case,
    advantages_in,
    grouped,
    make_batch,
    run_ranks,
)
from verl_trgrpo.demos.puzzles import CHECKPOINT

ACTOR = "actor_rollout_ref.actor"
LOPTI = f"{ACTOR}.policy_loss.lopti"
# Plain gradient descent, whose steps are linear in the gradient: Adam's first step would turn rounding into signs.
RATE, STEPS = 0.05, 10
DESCENT = (
    f"{ACTOR}.optim.optimizer=SGD", f"{ACTOR}.optim.lr={RATE}", f"{ACTOR}.optim.lr_scheduler_type=cosine",
    f"{ACTOR}.optim.min_lr_ratio=0.0", f"{ACTOR}.optim.total_training_steps={STEPS}",
)  # fmt: skip
# The quantile is between two of the 501 tokens.
KL, BONUS, QUANTILE = 0.1, 0.1, 0.301
PENALTIES = (
    f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.kl_loss_coef={KL}", f"{ACTOR}.kl_loss_type=low_var_kl",
    f"{ACTOR}.entropy_coeff={BONUS}", f"{ACTOR}.calculate_entropy=true",
)  # fmt: skip
# Clip-higher and dual clip of the authors' scripts for Lopti.
SCRIPTS = (0.24, 10.0)
# A group of 1, 3, 0 and 2 right responses. Of two ranks each has half of the last two, and of the others 3 and 1, or 1 and 3.
REWARDS = (0.0, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0)
GROUPS = [str({1: 0, 8: 1}.get(row, row % 4)) for row in range(ROWS)]


SWITCHED = (f"{LOPTI}.quantile={QUANTILE}", f"{LOPTI}.rare_first=false", *PENALTIES)


def case(number, *loss, layout, **options):
    """Cases of equal models would share weights: a seed makes each another."""
    return Case(loss, layout, (*DESCENT, f"{ACTOR}.fsdp_config.seed={number}"), **options)


CASES = {
    "lopti": case(1, "algorithm=lopti", layout=2),
    "switched": case(2, "algorithm=ar_lopti", *SWITCHED, layout=4, mini_batches=2),
    "lopti, padded columns": case(7, "algorithm=lopti", layout=2, padded=True),
}


@pytest.fixture(scope="module")
def batch():
    made = make_batch()
    by_group = {"0": (0.8, -0.4), "1": (0.4, -1.2), "2": (0.0, 0.0), "3": (1.0, -1.0)}
    advantages = [by_group[group][0 if reward else 1] for group, reward in zip(GROUPS, REWARDS, strict=True)]
    return {**made, **grouped(REWARDS, 4), "uid": GROUPS, "advantages": advantages_in(made, advantages)}


@pytest.fixture(scope="module", params=[1, 2])
def ranks(request, batch):
    return request.param, dict(zip(CASES, run_ranks(batch, list(CASES.values()), request.param), strict=True))


class Loop:
    """Plain gradient descent on the tiny model."""

    def __init__(self, batch, alpha=0.0, penalties=False, clip=(0.2, 3.0)):
        """`alpha` of the weights alpha p_old + 1 - alpha; `penalties` are KL loss and entropy; `clip` is high and dual."""
        self.batch, self.alpha, self.penalties, self.clip = batch, alpha, penalties, clip
        self.model = load(CHECKPOINT)[1].float().train(False)
        self.weights = dict(self.model.named_parameters())
        self.start = {name: p.detach().clone() for name, p in self.weights.items()}

    def update(self, rows, chosen, advantages):
        """One step: the tokens of `rows` that are `chosen`, divided by all tokens of these rows."""
        total = 0.0
        for row in rows:
            ids, n = self.batch["input_ids"][row], len(self.batch["responses"][row])
            old, mask = self.batch["old_log_probs"][row], self.batch["response_mask"][row] * chosen[row]
            logits = self.model(input_ids=ids[None]).logits[0, -n - 1 : -1]
            log_prob = logits.log_softmax(-1).gather(-1, ids[-n:, None]).squeeze(-1)
            ratio, gain = (log_prob - old).exp(), advantages[row]
            high, dual = self.clip
            lower = torch.where(gain < 0, dual * gain, -math.inf)
            surrogate = torch.maximum(torch.minimum(ratio * gain, ratio.clamp(0.8, 1 + high) * gain), lower)
            loss = -(self.alpha * old.exp() + 1 - self.alpha) * surrogate
            if self.penalties:
                reference = (self.batch["ref_log_prob"][row] - log_prob).clamp(-20, 20)  # veRL's limits
                entropy = torch.distributions.Categorical(logits=logits).entropy()
                loss = loss + KL * (reference.exp() - reference - 1).clamp(-10, 10) - BONUS * entropy
            total = total + (loss * mask).sum()
        (total / sum(self.batch["response_mask"][row].sum() for row in rows)).backward()
        with torch.no_grad():
            for p in self.weights.values():
                p -= RATE * p.grad
                p.grad = None

    def distance(self, update):
        """How far the worker has moved the weights from where this loop has, relative to how far that is."""
        assert update.weights.keys() == self.weights.keys()
        moved = torch.cat([(p.detach() - self.start[name]).flatten() for name, p in self.weights.items()])
        found = torch.cat([(update.weights[name] - self.start[name]).flatten() for name in self.weights])
        assert moved.norm() > 0.01
        return (found - moved).norm() / moved.norm()

    def check(self, update):
        """The worker has moved the weights as this loop has.

        In float32: on some processors the sums of four updates differ by 1e-4, and every other order or clip by 1e-2.
        """
        assert self.distance(update) < 1e-3
        # One step of the schedule, however many updates.
        assert update.metrics["lr"] == pytest.approx(RATE * (1 + math.cos(math.pi / STEPS)) / 2)


def rare_below(batch, threshold):
    return [old.exp() < threshold for old in batch["old_log_probs"]]


def share(batch, chosen):
    total = sum(mask.sum() for mask in batch["response_mask"])
    return float(sum((mask * one).sum() for mask, one in zip(batch["response_mask"], chosen, strict=True)) / total)


def others(chosen):
    return [~one for one in chosen]


@pytest.mark.parametrize("name", ["lopti", "lopti, padded columns"])
def test_rare_tokens_are_updated_before_the_others(batch, ranks, name):
    update, loop, rare = ranks[1][name], Loop(batch, clip=SCRIPTS), rare_below(batch, 0.4)
    for chosen in (rare, others(rare)):
        loop.update(range(ROWS), chosen, batch["advantages"])
    loop.check(update)
    assert 0.05 < update.metrics["actor/lopti_rare_frac"] == pytest.approx(share(batch, rare))
    # One update with all tokens is another, and so is the other order.
    for passes in ([[True] * ROWS], [others(rare), rare]):
        loop = Loop(batch, clip=SCRIPTS)
        for chosen in passes:
            loop.update(range(ROWS), chosen, batch["advantages"])
        assert loop.distance(update) > 1e-2


def test_the_other_order_by_a_quantile_with_weights_mini_batches_and_the_pass_s_kl_and_entropy(batch, ranks):
    world, updates = ranks
    pairs = zip(batch["old_log_probs"], batch["response_mask"], strict=True)
    rare = rare_below(batch, torch.cat([old[mask.bool()] for old, mask in pairs]).exp().quantile(QUANTILE))
    # Each rank takes half of its rows for the first mini-batch.
    own = ROWS // world
    halves = [[row for row in range(ROWS) if (row % own < own // 2) is first] for first in (True, False)]
    loop = Loop(batch, alpha=0.3, penalties=True, clip=SCRIPTS)
    for chosen in (others(rare), rare):
        for rows in halves:
            loop.update(rows, chosen, batch["advantages"])
    loop.check(updates["switched"])
    assert updates["switched"].metrics["actor/lopti_rare_frac"] == pytest.approx(QUANTILE, abs=1e-3)
