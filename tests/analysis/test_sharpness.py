"""Sharpness of quadratics, where slope, mean curvature and the rise along the gradient are known exactly."""

import pytest
import torch

from verl_trgrpo.analysis.sharpness import measure_sharpness

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
