"""Nearest points of a few half-spaces and a box through their dual values, one problem per row.

For dual values y the nearest offset is `clip(w' y / 2, lower, upper)`, so that the dual function
has one variable per half-space, is concave and piecewise quadratic. Newton's method on it ends
after a few steps, exactly, once it is on the right piece (Qi and Sun, 1993, on semismooth
equations); each step costs one product with the normals. Rows whose demands cannot all be met
have no such end and are told.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["nearest_few"]

STEPS = 12  # rows that have no end in so many mostly have none
EXACT = 1e-10  # of a demand, in units of its largest coefficient
RIDGE = 1e-13  # of the trace


def nearest_few(
    w: Tensor, gap: Tensor, lower: Tensor, upper: Tensor, dual: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Minimise `|delta|^2` subject to `w_c . delta >= gap_c` for all c inside a box, in float64.

    Args:
        w: (n, c, d) normals.
        gap: (n, c) demands.
        lower: (n, d) smallest offsets.
        upper: (n, d) largest offsets.
        dual: (n, c) dual values to start from, not negative.

    Returns:
        (offsets (n, d), dual values (n, c), solved (n,) bool).

    >>> w, box = torch.tensor([[[1.0, 0.0], [1.0, 2.0]]]).double(), torch.ones(1, 2).double()
    >>> nearest_few(w, torch.tensor([[0.5, 1.5]]).double(), -box, box, torch.zeros(1, 2))[0]
    tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """
    size = w.abs().amax(2).clamp(min=1e-300)
    w, gap, y = w / size[..., None], gap / size, dual.to(w) * size
    out = (torch.zeros_like(lower), torch.zeros_like(y))
    solved, at = torch.zeros_like(y[:, 0], dtype=torch.bool), torch.arange(len(w)).to(w.device)
    part: tuple[Tensor, ...] = (w, gap, lower, upper)
    value, delta, missed = _look(y, *part)
    share = torch.ones_like(value)
    for _ in range(STEPS):
        met = _miss(y, missed) <= EXACT * (1 + part[1].abs().amax(1))
        out[0][at[met]], out[1][at[met]], solved[at[met]] = delta[met], y[met], True
        keep = (~met).nonzero()[:, 0]
        if not len(keep):
            break
        if len(keep) < len(at):
            at, y, value, delta, missed, share = (
                t[keep] for t in (at, y, value, delta, missed, share)
            )
            part = tuple(t[keep] for t in part)
        trial = (y + share[:, None] * _newton(y, delta, missed, *part)).clamp(min=0)
        value_new, delta_new, missed_new = _look(trial, *part)
        better = value_new > value
        share = torch.where(better, torch.ones_like(share), share / 3)
        y, delta = (
            torch.where(better[:, None], a, b) for a, b in ((trial, y), (delta_new, delta))
        )
        missed = torch.where(better[:, None], missed_new, missed)
        value = torch.where(better, value_new, value)
    return out[0], out[1] / size, solved


def _look(
    y: Tensor, w: Tensor, gap: Tensor, lower: Tensor, upper: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the dual function (n,), the offsets that belong to y, and what they miss (n, c)."""
    push = (y[:, None] @ w)[:, 0]
    delta = torch.minimum(torch.maximum(push / 2, lower), upper)
    value = (delta * (delta - push)).sum(1) + (y * gap).sum(1)
    return value, delta, gap - (w @ delta[..., None])[..., 0]


def _miss(y: Tensor, missed: Tensor) -> Tensor:
    """Return the largest breach (n,) of the conditions: demands that bind are met exactly."""
    return torch.where(y > 0, missed.abs(), missed.clamp(min=0)).amax(1)


def _newton(
    y: Tensor,
    delta: Tensor,
    missed: Tensor,
    w: Tensor,
    gap: Tensor,
    lower: Tensor,
    upper: Tensor,
) -> Tensor:
    """Return the step (n, c) to the top of the present piece, over the demands that count."""
    counts = (y > 0) | (missed > 0)
    loose = w * ((delta > lower) & (delta < upper))[:, None]
    matrix = loose @ w.mT / 2
    both = counts[:, :, None] & counts[:, None, :]
    trace = matrix.diagonal(dim1=1, dim2=2).sum(1)[:, None, None]
    eye = torch.eye(w.shape[1], dtype=w.dtype, device=w.device)
    matrix = torch.where(both, matrix + (RIDGE * trace + 1e-14) * eye, eye)
    right = torch.where(counts, missed, torch.zeros_like(missed))
    step: Tensor = torch.linalg.solve_ex(matrix, right[..., None])[0]
    return step[..., 0].nan_to_num(0.0, 0.0, 0.0)
