"""Sparse alternatives to softmax and sigmoid, with alpha = 1.5.

Peters, Niculae and Martins, "Sparse Sequence-to-Sequence Models", ACL 2019.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["entmax15", "entmoid15"]


class _Entmax15(torch.autograd.Function):
    """`p_i = max(x_i / 2 - tau, 0)^2` along the first axis, with tau such that p sums to 1."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        # The largest entry is taken off first: tau is then well conditioned.
        half = (x - x.amax(0, keepdim=True)) / 2
        return (half - _threshold(half)).clamp(min=0).square()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        root: Tensor = ctx.saved_tensors[0].sqrt()
        weighted = grads[0] * root
        return weighted - root * weighted.sum(0, keepdim=True) / root.sum(0, keepdim=True)


def _threshold(half: Tensor) -> Tensor:
    """Return tau, (1, ...), by trying every support size of the sorted entries."""
    ordered = half.sort(0, descending=True).values
    size = torch.arange(1, len(half) + 1, dtype=half.dtype, device=half.device)
    size = size.view(-1, *(1,) * (half.dim() - 1))
    mean = ordered.cumsum(0) / size
    spread = (ordered.square().cumsum(0) / size - mean.square()) * size
    tau = mean - ((1 - spread) / size).clamp(min=0).sqrt()
    support = (tau <= ordered).sum(0, keepdim=True)
    return tau.gather(0, support - 1)


def entmax15(x: Tensor, dim: int = -1) -> Tensor:
    """Map scores to probabilities of which many are exactly zero, along `dim`.

    >>> entmax15(torch.tensor([2.0, 0.0, -3.0]))
    tensor([1., 0., 0.])
    """
    moved: Tensor = _Entmax15.apply(x.movedim(dim, 0))  # type: ignore[no-untyped-call]
    return moved.movedim(0, dim)


def entmoid15(z: Tensor) -> Tensor:
    """Return the first of the two entries of 1.5-entmax over (z, 0), elementwise.

    In closed form `((sqrt(8 - z^2) + z) / 4)^2` between -2 and 2, and exactly 0 or 1 beyond.

    >>> entmoid15(torch.tensor([-3.0, 0.0, 3.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    z = z.clamp(-2.0, 2.0)
    return (((8 - z.square()).sqrt() + z) / 4).square()
