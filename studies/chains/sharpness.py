"""Measure how sharp the exact accuracy is around policies over chains of tokens."""

from __future__ import annotations

import torch

from studies.chains.chains import Parameters, exact_accuracy


@torch.no_grad()
def noise_loss(
    parameters: Parameters, prompts: torch.Tensor, generator: torch.Generator, size: float = 0.02, draws: int = 16
) -> torch.Tensor:
    """Return the mean loss of exact accuracy under noise on the weights, (seeds,).

    Args:
        parameters: of each seed's policy.
        prompts: (seeds, n) prompts of the accuracy.
        generator: of the Gaussian noise.
        size: expected norm of the noise of a tensor of parameters, relative to that of the tensor.
        draws: number of noises, each with both signs, which cancel the gradient.
    """
    found = torch.zeros_like(exact_accuracy(parameters, prompts))
    norms = [parameter.flatten(1).norm(dim=-1)[:, None, None] / parameter[0].numel() ** 0.5 for parameter in parameters]
    for _ in range(draws):
        noise = [
            size * norm * torch.randn(p.shape, generator=generator) for p, norm in zip(parameters, norms, strict=True)
        ]
        for sign in (1, -1):
            moved = [parameter + sign * own for parameter, own in zip(parameters, noise, strict=True)]
            found += exact_accuracy(moved, prompts)
    return exact_accuracy(parameters, prompts) - found / (2 * draws)


def largest_curvature(
    parameters: Parameters, prompts: torch.Tensor, generator: torch.Generator, iterations: int = 12
) -> torch.Tensor:
    """Return the largest eigenvalue of the Hessian of 1 - exact accuracy by all parameters, (seeds,).

    Lanczos' method with full orthogonalization, for all seeds at once, from random vectors. The kinks of relu have no second
    derivative; under noise they count.
    """
    parameters = [parameter.detach().requires_grad_() for parameter in parameters]
    sizes = [parameter[0].numel() for parameter in parameters]
    loss = -exact_accuracy(parameters, prompts).sum()  # of independent seeds
    gradient = torch.autograd.grad(loss, parameters, create_graph=True)

    def product(vectors: torch.Tensor) -> torch.Tensor:
        parts = zip(vectors.split(sizes, -1), parameters, strict=True)
        directions = [part.view_as(parameter) for part, parameter in parts]
        found = torch.autograd.grad(gradient, parameters, directions, retain_graph=True)
        return torch.cat([part.flatten(1) for part in found], -1)

    basis = torch.nn.functional.normalize(torch.randn(len(prompts), 1, sum(sizes), generator=generator), dim=-1)
    small = torch.zeros(len(prompts), iterations, iterations)
    for place in range(iterations):
        vectors = product(basis[:, -1])
        for _ in range(2):  # once more for what rounding left
            along = torch.einsum("skn,sn->sk", basis, vectors)
            small[:, place, : place + 1] += along
            vectors = vectors - torch.einsum("skn,sk->sn", basis, along)
        length = vectors.norm(dim=-1, keepdim=True)
        if place + 1 < iterations:
            small[:, place, place + 1] = length[:, 0]
        basis = torch.cat([basis, (vectors / length.clamp(min=1e-12))[:, None]], 1)
    return torch.linalg.eigvalsh((small + small.transpose(-1, -2)) / 2)[:, -1]
