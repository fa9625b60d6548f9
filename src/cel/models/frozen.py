"""Modules for use: eval mode, no gradients to parameters, in any floating dtype."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

__all__ = ["FrozenModule"]


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
