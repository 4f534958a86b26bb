"""Sharpness of quadratics, where slope, mean curvature and the rise along the gradient are known exactly."""

import json

import pytest
import torch

from studies.gradients.sharpness import SharpnessOptions, analyze_sharpness, main, measure_sharpness
from tests.studies.policies import SIZES, command
from verl_trgrpo.common.progress import no_progress
from verl_trgrpo.demos.puzzles import CHECKPOINT

CURVATURES = torch.tensor([3.0, 1.0, 0.5, 4.0, 2.0], dtype=torch.float64)


def quadratic(parameters):
    """L = b / 2 * x^T H x for the batch b, with diagonal H; its gradient is b H x."""
    return lambda batch: batch * 0.5 * (CURVATURES * torch.cat([p.flatten() for p in parameters]).square()).sum()


def start():
    x = torch.tensor([1.0, -2.0, 0.5, 0.3, 1.5], dtype=torch.float64)
    return x, [x[:2].clone().requires_grad_(), x[2:].clone().reshape(3, 1).requires_grad_()]


def test_gradient_norm_and_sam_rise_of_a_quadratic_are_exact():
    x, parameters = start()
    relative_radii = (0.1, 0.01)
    found = measure_sharpness(quadratic(parameters), [1.0, 3.0], parameters, relative_radii)
    slope = (CURVATURES * x).norm().item()
    along = (CURVATURES * (CURVATURES * x).square()).sum().item() / slope**2  # g^T H g / g^T g
    for at, relative in zip(found, relative_radii, strict=True):
        radius = relative * x.norm().item()
        assert at.radius == pytest.approx(radius)
        # Batches 1 and 3 scale the loss; their mean is 2.
        assert at.gradient_norm.mean == pytest.approx(2 * slope)
        assert at.sam_rise.mean == pytest.approx(2 * (radius * slope + radius**2 * along / 2))
        assert at.sam_curvature.mean == pytest.approx(radius**2 * along)


def test_parameters_are_put_back_to_the_bit():
    values = torch.randn(100, generator=torch.Generator().manual_seed(0)).requires_grad_()
    before = values.detach().clone()
    measure_sharpness(lambda batch: values.square().sum(), [0], [values], [0.3])
    assert torch.equal(values, before)


def test_sharpness_of_a_checkpoint_has_the_gradient_norm_of_its_policy_gradient(policy, data, rollouts, tmp_path):
    given = SharpnessOptions(model=("any",), data=data, out=tmp_path, radius=(1e-4,), **SIZES)
    (found,) = analyze_sharpness(*policy, given, no_progress)
    _, model = policy
    total, count = 0.0, 0
    for rollout in rollouts:
        ids = torch.cat([rollout.prompt, rollout.response])
        log_probs = torch.log_softmax(model(ids[None]).logits[0], -1)
        at = torch.arange(len(rollout.prompt) - 1, len(ids) - 1)
        total = total + rollout.advantage * log_probs[at, rollout.response].sum()
        count += len(rollout.response)
    grads = torch.autograd.grad(total / count, list(model.parameters()))
    norm = torch.cat([g.flatten() for g in grads]).norm().item()
    assert found.gradient_norm.mean == pytest.approx(norm, rel=1e-3)
    # To first order the step along the gradient raises the loss by radius times norm.
    assert found.sam_rise.mean > 0.5 * found.radius * norm


def test_the_command_measures_sharpness_for_each_radius(data, tmp_path, capsys):
    assert main(command(data, tmp_path, "--radius", "0.0001", "0.001")) == 0
    assert "gradient norm" in capsys.readouterr().out
    measured = json.loads((tmp_path / "sharpness.json").read_text())
    first, second = measured["models"][str(CHECKPOINT)]
    assert second["radius"] == pytest.approx(10 * first["radius"])
    with pytest.raises(ValueError, match="all 2 responses to each of 2 prompts"):
        main(command(data, tmp_path, prompts=2, samples=2, max_tokens=1))


def test_all_problems_of_the_options_are_reported_at_once(tmp_path):
    with pytest.raises(ValueError, match=r"samples=1(.|\n)*model is empty(.|\n)*radius=0"):
        SharpnessOptions(model=(), data=tmp_path, out=tmp_path, samples=1, radius=(0.0,))
