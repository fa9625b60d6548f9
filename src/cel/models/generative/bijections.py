"""Invertible maps of single numbers whose parameters a network supplies."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from cel.models.generative.splines import spline, spline_inverse, spline_knots

__all__ = ["Affine", "Bijection", "Shift", "Spline"]


class Bijection(Protocol):
    """A map of (..., d) numbers, each with `n_params` parameters; zero parameters: the identity."""

    n_params: int

    def forward(self, x: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        """Return z (..., d) and log |dz/dx| (..., d) for params (..., n_params, d)."""
        ...

    def inverse(self, z: Tensor, params: Tensor) -> Tensor:
        """Return the x (..., d) that is mapped to `z`."""
        ...


class Affine:
    """z = (x - m) exp(-a) with a = c tanh(raw / c): a scale that cannot run away.

    >>> z, slope = Affine().forward(torch.ones(1), torch.zeros(2, 1))
    >>> z.item(), slope.item()
    (1.0, 0.0)
    """

    n_params = 2

    def __init__(self, limit: float = 3.0) -> None:
        self.limit = limit

    def forward(self, x: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        """Return z and -a."""
        shift, scale = self._split(params)
        return (x - shift) * (-scale).exp(), -scale

    def inverse(self, z: Tensor, params: Tensor) -> Tensor:
        """Return m + z exp(a)."""
        shift, scale = self._split(params)
        return shift + z * scale.exp()

    def _split(self, params: Tensor) -> tuple[Tensor, Tensor]:
        shift, raw = params.unbind(-2)
        return shift, self.limit * torch.tanh(raw / self.limit)


class Shift:
    """z = x - m: volume is kept (NICE)."""

    n_params = 1

    def forward(self, x: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        """Return z and zero."""
        return x - params.squeeze(-2), torch.zeros_like(x)

    def inverse(self, z: Tensor, params: Tensor) -> Tensor:
        """Return z + m."""
        return z + params.squeeze(-2)


class Spline:
    """A monotone rational-quadratic spline inside (-b, b), the identity outside."""

    def __init__(self, bins: int = 8, bound: float = 5.0) -> None:
        self.bins, self.bound = bins, bound
        self.n_params = 3 * bins - 1

    def forward(self, x: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        """Return the curve at `x` and its log-slope."""
        return spline(x, spline_knots(params, self.bound), self.bound)

    def inverse(self, z: Tensor, params: Tensor) -> Tensor:
        """Return the x at which the curve is `z`."""
        return spline_inverse(z, spline_knots(params, self.bound), self.bound)
