"""Layers that serve one model or a stack of same-shaped models, and modules for use."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from cel.errors import ConfigError

__all__ = ["FrozenModule", "Linear", "Network", "affine"]


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `x W' + b`, model by model when `weight` is (s, out, in) and `bias` is (s, out)."""
    if weight.dim() == 2:
        return nn.functional.linear(x, weight, bias)
    if bias is None:
        return torch.bmm(x, weight.mT)
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


class Linear(nn.Linear):
    """An affine map whose weights may carry a leading axis of `s` models.

    With weights (out, in) it maps (n, in) to (n, out). After stacking, weights are (s, out, in)
    and it maps (s, n, in) to (s, n, out) with one batched product.

    >>> Linear(3, 2)(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the affine image of the last axis."""
        return affine(input, self.weight, self.bias)


class Network(nn.Module):
    """ReLU layers, then an affine one whose outputs are rescaled by `shift` and `scale`.

    Regression keeps the range of its targets there, so that the layers work on unit scale.
    """

    stackable = True
    shift: Tensor
    scale: Tensor

    def __init__(
        self, n_in: int, hidden: tuple[int, ...], n_out: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if not all(isinstance(h, int) and h > 0 for h in hidden):
            raise ConfigError(f"hidden widths must be positive integers, got {hidden!r}")
        if not 0.0 <= dropout < 1.0:
            raise ConfigError(f"dropout must lie in [0, 1), got {dropout!r}")
        layers: list[nn.Module] = []
        for width_in, width in zip((n_in, *hidden), hidden, strict=False):
            layers += [Linear(width_in, width), nn.ReLU()]
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers, Linear((n_in, *hidden)[-1], n_out))
        self.register_buffer("shift", torch.zeros(1, n_out))
        self.register_buffer("scale", torch.ones(1, n_out))

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., n, n_in) to (..., n, n_out)."""
        out: Tensor = self.layers(x) * self.scale + self.shift
        return out


class FrozenModule:
    """Copies of a module that share its weights and leave it untouched.

    `as_dtype` gives a module in eval mode whose parameters take no gradients. In the dtype of the
    module it shares memory with it, in another one its weights are cast, once.

    >>> layer = nn.Linear(2, 1)
    >>> frozen = FrozenModule(layer).as_dtype(torch.float64)
    >>> frozen.weight.dtype, frozen.weight.requires_grad, layer.weight.requires_grad
    (torch.float64, False, True)
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._copies: dict[torch.dtype, nn.Module] = {}

    def as_dtype(self, dtype: torch.dtype) -> nn.Module:
        """Return the module for inputs of this dtype."""
        if dtype not in self._copies:
            memo: dict[int, Any] = {}
            for p in self.module.parameters():
                memo[id(p)] = nn.Parameter(p.detach().to(dtype), requires_grad=False)
            for b in self.module.buffers():
                memo[id(b)] = b.detach().to(dtype) if b.is_floating_point() else b
            self._copies[dtype] = copy.deepcopy(self.module, memo).eval()
        return self._copies[dtype]

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenModule:
        return FrozenModule(copy.deepcopy(self.module, memo))

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self.module, "_copies": {}}
