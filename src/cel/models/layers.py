"""Layers that serve one model or a stack of same-shaped models."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Linear", "mlp"]


class Linear(nn.Linear):
    """An affine map whose weights may carry a leading axis of `s` models.

    With weights (out, in) it maps (n, in) to (n, out). After stacking, weights are (s, out, in) and
    it maps (s, n, in) to (s, n, out) with one batched product.

    >>> Linear(3, 2)(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the affine image of the last axis."""
        return affine(input, self.weight, self.bias)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `x W' + b`, model by model when `weight` is (s, out, in) and `bias` is (s, out)."""
    if weight.dim() == 2:
        return F.linear(x, weight, bias)
    if bias is None:
        return torch.bmm(x, weight.mT)
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


def mlp(n_in: int, hidden: tuple[int, ...], n_out: int, dropout: float = 0.0) -> nn.Sequential:
    """Return a ReLU network with the given hidden widths."""
    layers: list[nn.Module] = []
    for width_in, width in zip((n_in, *hidden), hidden, strict=False):
        layers += [Linear(width_in, width), nn.ReLU()]
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, Linear((n_in, *hidden)[-1], n_out))
