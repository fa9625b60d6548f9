"""The law of a flow's latent numbers: normal, with a share of heavy tails."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["draw_latent", "log_latent", "log_student", "student_constants"]

DEGREES = 3  # of freedom: finite variance, and a log-density that falls with log |z| only


def log_latent(z: Tensor, share: float) -> Tensor:
    """Return the row sums of log[(1 - e) N(z; 0, 1) + e t(z)] over the last axis.

    A normal law alone gives rows far from the data log-densities of -1e8 and worse. A share `e`
    of a Student law in every coordinate keeps the law exactly normalised, costs about `e` nats per
    coordinate, and lets the log-density fall like the logarithm of the distance while its
    gradient still leads back to the data.

    >>> log_latent(torch.tensor([[1e8]]), 1e-3) > -100
    tensor([True])
    """
    normal = -0.5 * (z.square() + math.log(2 * math.pi))
    if share == 0:
        return normal.sum(-1)
    tail = log_student(z)
    return torch.logaddexp(normal + math.log1p(-share), tail + math.log(share)).sum(-1)


def log_student(z: Tensor) -> Tensor:
    """Return the log-density of the Student law with three degrees of freedom."""
    half, constant = student_constants()
    return constant - half * torch.log1p(z.square() / DEGREES)


def student_constants() -> tuple[float, float]:
    """Return h and c of the log-density c - h log(1 + z^2 / k) with k degrees of freedom."""
    half = (DEGREES + 1) / 2
    constant = math.lgamma(half) - math.lgamma(DEGREES / 2) - 0.5 * math.log(DEGREES * math.pi)
    return half, constant


def draw_latent(shape: tuple[int, ...], share: float, generator: torch.Generator) -> Tensor:
    """Draw latent numbers from the law of `log_latent`, on the generator's device."""
    device = generator.device
    z = torch.randn(shape, generator=generator, device=device)
    if share == 0:
        return z
    chi = torch.randn((*shape, DEGREES), generator=generator, device=device).square().mean(-1)
    heavy = torch.rand(shape, generator=generator, device=device) < share
    return torch.where(heavy, z / chi.sqrt(), z)
