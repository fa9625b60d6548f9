"""Nearest points of a few half-spaces and a box through their dual values, one problem per row.

For dual values y the nearest offset is `clip(w' y / 2, lower, upper)`, so that the dual function
has one variable per half-space, is concave and piecewise quadratic. Newton's method on it ends
after a few steps, exactly, once it is on the right piece (Qi and Sun, 1993, on semismooth
equations). How far to go along a direction is itself a problem with one half-space, which has a
closed form. A half-space may be missed at a high cost, the largest dual value: every program
then has an end, and rows whose demands cannot all be met end where they miss least.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cel.solvers.closed_forms import nearest_elastic

__all__ = ["nearest_few"]

STEPS = 12  # nearly all rows end in three
EXACT = 1e-9  # of a demand, in units of its largest coefficient
RIDGE = 1e-13  # of the trace
SMALLEST = 1e-12  # room of a box


def nearest_few(
    w: Tensor, gap: Tensor, lower: Tensor, upper: Tensor, dual: Tensor, *, dearest: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Minimise `|delta|^2` subject to `w_c . delta >= gap_c` for all c inside a box, in float64.

    Args:
        w: (n, c, d) normals.
        gap: (n, c) demands.
        lower: (n, d) smallest offsets.
        upper: (n, d) largest offsets.
        dual: (n, c) dual values to start from, not negative.
        dearest: cost of missing a half-space by one in units of its largest coefficient, in units
            of the dearest offset.

    Returns:
        (offsets (n, d), dual values (n, c), solved (n,) bool).

    >>> w, box = torch.tensor([[[1.0, 0.0], [1.0, 2.0]]]).double(), torch.ones(1, 2).double()
    >>> rest = -box, box, torch.zeros(1, 2)
    >>> nearest_few(w, torch.tensor([[0.5, 1.5]]).double(), *rest, dearest=1e4)[0]
    tensor([[0.5000, 0.5000]], dtype=torch.float64)
    >>> nearest_few(w, torch.tensor([[0.5, 9.0]]).double(), *rest, dearest=1e4)[0]
    tensor([[1., 1.]], dtype=torch.float64)
    """
    size = w.abs().amax(2).clamp(min=1e-300)
    top = dearest * _dearest_offset(lower, upper)[:, None].expand_as(gap)
    y = torch.minimum(dual.to(w) * size, top)
    part: tuple[Tensor, ...] = (w / size[..., None], gap / size, lower, upper, top)
    out = (torch.zeros_like(lower), torch.zeros_like(y))
    solved, at = torch.zeros_like(y[:, 0], dtype=torch.bool), torch.arange(len(w)).to(w.device)
    for _ in range(STEPS):
        delta, missed = _look(y, *part[:4])
        met = _breach(y, missed, part[4]) <= EXACT * (1 + part[1].abs().amax(1))
        out[0][at[met]], out[1][at[met]], solved[at[met]] = delta[met], y[met], True
        keep = (~met).nonzero()[:, 0]
        if not len(keep):
            break
        if len(keep) < len(at):
            at, y, delta, missed = (t[keep] for t in (at, y, delta, missed))
            part = tuple(t[keep] for t in part)
        y = _along(y, _direction(y, delta, missed, *part), *part)
    return out[0], out[1] / size, solved


def _dearest_offset(lower: Tensor, upper: Tensor) -> Tensor:
    """Return the slope (n,) of the cost at the far end of a box, or one away from its near end."""
    near = torch.minimum(torch.maximum(torch.zeros_like(lower), lower), upper)
    room = torch.maximum(upper - near, near - lower).clamp(SMALLEST, 1.0)
    return 2 * (near.abs().amax(1) + room.amax(1))


def _look(
    y: Tensor, w: Tensor, gap: Tensor, lower: Tensor, upper: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the offsets that belong to y, and what they miss (n, c), the slope of the dual."""
    delta = torch.minimum(torch.maximum((y[:, None] @ w)[:, 0] / 2, lower), upper)
    return delta, gap - (w @ delta[..., None])[..., 0]


def _breach(y: Tensor, missed: Tensor, top: Tensor) -> Tensor:
    """Return the largest breach (n,) of the conditions: demands that bind are met exactly."""
    inside = torch.where(y > 0, missed.abs(), missed.clamp(min=0))
    return torch.where(y < top, inside, (-missed).clamp(min=0)).amax(1)


def _direction(
    y: Tensor,
    delta: Tensor,
    missed: Tensor,
    w: Tensor,
    gap: Tensor,
    lower: Tensor,
    upper: Tensor,
    top: Tensor,
) -> Tensor:
    """Return the way (n, c) to the top of the present piece, over the dual values that may move.

    Where it leads out of the bounds at once, the way of steepest ascent.
    """
    free = ((y > 0) | (missed > 0)) & ((y < top) | (missed < 0))
    loose = w * ((delta > lower) & (delta < upper))[:, None]
    matrix = loose @ w.mT / 2
    both = free[:, :, None] & free[:, None, :]
    trace = matrix.diagonal(dim1=1, dim2=2).sum(1)[:, None, None]
    eye = torch.eye(w.shape[1], dtype=w.dtype, device=w.device)
    matrix = torch.where(both, matrix + (RIDGE * trace + 1e-14) * eye, eye)
    steepest = torch.where(free, missed, torch.zeros_like(missed))
    solution: Tensor = torch.linalg.solve_ex(matrix, steepest[..., None])[0]
    newton = solution[..., 0].nan_to_num(0.0, 0.0, 0.0)
    out = ((y >= top) & (newton > 0)) | ((y <= 0) & (newton < 0))
    way = torch.where(out.any(1, keepdim=True), steepest, newton)
    return way / way.abs().amax(1, keepdim=True).clamp(min=1e-300)


def _along(
    y: Tensor, way: Tensor, w: Tensor, gap: Tensor, lower: Tensor, upper: Tensor, top: Tensor
) -> Tensor:
    """Return the highest point of the dual function from y along a way, inside the bounds.

    With t steps the offset is `clip((w' y + t w' way) / 2)`: that of one half-space with the
    normal `w' way` under a pull towards `w' y`.
    """
    best = nearest_elastic(
        (way[:, None] @ w)[:, 0],
        (way * gap).sum(1),
        lower,
        upper,
        pull=(y[:, None] @ w)[:, 0],
        theta=1.0,
    )
    room = torch.where(way > 0, top - y, y) / way.abs()  # infinite where a value does not move
    most = torch.where(way != 0, room, torch.full_like(room, torch.inf)).amin(1)
    steps = torch.where(best.feasible, torch.minimum(best.dual / 2, most), most)
    return torch.minimum((y + steps[:, None] * way).clamp(min=0), top)
