"""algorithm=reinforce with its coefficients: in every trainer each token has the gradient -c A, c computed in plain Python."""

import math

import pytest
import torch
from omegaconf import OmegaConf
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils import losses

from tests.conftest import composed
from tests.verl_plugin.test_ppo_loss import LENGTHS, micro_batch
from tests.verl_plugin.test_ways_to_train import TRAINERS, compose_way

ACTOR = "actor_rollout_ref.actor"


def gradients(config):
    """Return, for each response, log r and A of its tokens and the gradient of the worker's loss."""
    OmegaConf.update(config, f"{ACTOR}.ppo_micro_batch_size_per_gpu", 1)
    config.actor_rollout_ref.rollout.n = 8
    values, output, data, of_response = micro_batch(range(4))
    loss, _ = losses.ppo_loss(omega_conf_to_dataclass(config.actor_rollout_ref.actor), output, data)
    (found,) = torch.autograd.grad(loss, values)
    rows = of_response.detach().split([n for _, n in LENGTHS])
    for row, old, a, whole, (prompt, _) in zip(
        rows,
        data["old_log_probs"].unbind(),
        data["advantages"].unbind(),
        found.split([sum(each) for each in LENGTHS]),
        LENGTHS,
        strict=True,
    ):
        yield (row - old).tolist(), float(a[0]), whole[prompt - 1 : -1].tolist()


def of_response(rule):
    return lambda rows: [[rule(math.exp(sum(xs)), a)] * len(xs) for xs, a in rows]


def up_grpo(rows):
    return [[1.0 if a > 0 else math.exp(x) * (0.8 <= math.exp(x) <= 3) for x in xs] for xs, a in rows]


def m2po(rows):
    """The largest (log r)^2 of tokens that move away are dropped until the mean is at most 0.04."""
    away = sorted(abs(x) for xs, a in rows for x in xs if a * x > 0)
    while away and sum(x * x for x in away) / len(away) > 0.04:
        away.pop()
    bound = max(away, default=0.0)
    return [[math.exp(x) * (a * x <= 0 or abs(x) <= bound) for x in xs] for xs, a in rows]


def vespo(w, a):
    return w**2 * math.exp(3 * (1 - w)) if a >= 0 else w**3 * math.exp(2 * (1 - w))


COEFFICIENTS = {
    "uniform": of_response(lambda w, a: 1.0),
    "topr": of_response(lambda w, a: 1.0 if a > 0 else min(w, 1.0)),
    "vespo": of_response(vespo),
    "up_grpo": up_grpo,
    "m2po": m2po,
}


@pytest.mark.parametrize("shaping", COEFFICIENTS)
@pytest.mark.parametrize("way", [None, *TRAINERS])
def test_the_gradient_is_the_coefficient_times_a(way, shaping, monkeypatch):
    words = ["algorithm=reinforce", f"shaping={shaping}"]
    if way is None:
        config = composed(words, "trgrpo_trainer").config
    else:
        config = compose_way(
            way, monkeypatch, *(f"+{word}" if word.startswith("algorithm") else word for word in words)
        )
    assert config.actor_rollout_ref.actor.loss_agg_mode == "token-mean"
    found = list(gradients(config))
    expected = COEFFICIENTS[shaping]([(xs, a) for xs, a, _ in found])
    tokens, seen = sum(n for _, n in LENGTHS), set()
    for (_, a, gradient), row in zip(found, expected, strict=True):
        assert gradient == pytest.approx([-c * a / tokens for c in row], rel=1e-4, abs=1e-7)
        seen |= {round(c, 3) for c in row}
    assert len(seen) > 1 or shaping == "uniform", "the batch tells the coefficient from 1"
