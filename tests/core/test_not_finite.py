"""Inputs that are not finite: outside the mask they change nothing, at a token they are never taken for a usual one."""

import math

import pytest
import torch

from verl_trgrpo.core import (
    ClipRange,
    HighEntropyClip,
    TokenWeighting,
    available_shapings,
    compute_policy_loss,
    make_shaping,
)

CASES = [(name, "ppo") for name in available_shapings()] + [("uniform", "aspo")]


def loss_and_gradient(name, surrogate, **changed):
    generator = torch.Generator().manual_seed(0)
    old = -2 * torch.rand(4, 8, generator=generator, dtype=torch.double)
    given = {
        "log_prob": old + 0.1 * torch.randn(4, 8, generator=generator, dtype=torch.double),
        "old_log_prob": old,
        "advantages": torch.linspace(-1, 2, 4, dtype=torch.double)[:, None].expand(4, 8).clone(),
        "entropy": 0.3 * torch.rand(4, 8, generator=generator, dtype=torch.double),
        "ref_log_prob": old.clone(),
        "success_rate": torch.full((4, 8), 0.5, dtype=torch.double),
    }
    for column, (place, value) in changed.items():
        given[column][place] = value
    log_prob = given.pop("log_prob").requires_grad_()
    mask = torch.arange(8) < torch.tensor([8, 5, 7, 3])[:, None]
    clip = ClipRange(high_entropy=HighEntropyClip() if surrogate == "aspo" else None)
    weighting = TokenWeighting(make_shaping(name))
    result = compute_policy_loss(
        log_prob, response_mask=mask, weighting=weighting, clip=clip, surrogate=surrogate, **given
    )
    return result.loss.detach(), torch.autograd.grad(result.loss, log_prob)[0]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("name", "surrogate"), CASES)
def test_what_is_not_finite_is_neither_hidden_nor_read_outside_the_mask(name, surrogate, value):
    clean = loss_and_gradient(name, surrogate)
    assert clean[0].isfinite()
    inputs = make_shaping(name).inputs
    for column in ("log_prob", "old_log_prob", "advantages", "entropy", "ref_log_prob"):
        outside = loss_and_gradient(name, surrogate, **{column: ((1, 6), value)})
        assert all(map(torch.equal, outside, clean)), column
        if column == "entropy" and (column in inputs or surrogate == "aspo"):
            assert not loss_and_gradient(name, surrogate, entropy=((0, 2), value))[0].isfinite()
        elif column in ("log_prob", "old_log_prob", "advantages"):
            vanilla = loss_and_gradient("uniform", surrogate, **{column: ((0, 2), value)})[0]
            found = loss_and_gradient(name, surrogate, **{column: ((0, 2), value)})[0]
            assert vanilla.isfinite() or not found.isfinite(), column
