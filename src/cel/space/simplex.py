"""Euclidean projection onto simplices, all rows and blocks at once."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["project_simplex"]


def project_simplex(v: Tensor, allowed: Tensor) -> Tensor:
    """Project the last axis of `v` onto {p >= 0, sum(p) = 1, p = 0 where not `allowed`}.

    Sort, find the largest support whose shifted entries stay positive, subtract the shift
    (Held, Wolfe and Crowder, 1974).

    Args:
        v: (..., k) values.
        allowed: (..., k) bool; at least one entry of each row must be true.

    >>> project_simplex(torch.tensor([[2.0, 0.0]]), torch.tensor([[True, True]]))
    tensor([[1., 0.]])
    """
    low = torch.finfo(v.dtype).min / 4
    ordered = torch.where(allowed, v, torch.full_like(v, low)).sort(-1, descending=True).values
    count = torch.arange(1, v.shape[-1] + 1, device=v.device, dtype=v.dtype)
    excess = torch.where(ordered > low / 2, ordered, torch.zeros_like(ordered)).cumsum(-1) - 1
    inside = (ordered - excess / count > 0) & (ordered > low / 2)
    size = inside.sum(-1, keepdim=True).clamp(min=1)
    shift = excess.gather(-1, size - 1) / size.to(v.dtype)
    return torch.where(allowed, (v - shift).clamp(min=0), torch.zeros_like(v))
