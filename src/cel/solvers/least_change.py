"""Reach several outputs at once with the least change (Gauss-Newton in its minimum-norm form)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cel.search.budget import Budget
from cel.search.gradient import Accept, Found, RowFunction

__all__ = ["least_change_search", "row_jacobian"]

RowOutputs = Callable[[Tensor, Tensor], Tensor]
"""(points (a, d), row numbers (a,)) -> outputs (a, m), differentiable."""

RIDGE = 1e-6  # of the mean diagonal; keeps dependent outputs solvable
CLIPS = 4


def row_jacobian(outputs: RowOutputs, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return (outputs (a, m), Jacobians (a, m, d)); one backward pass per output."""
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        value = outputs(x, rows)
        m = value.shape[1]
        if not value.requires_grad:
            return value.detach(), torch.zeros(*value.shape, x.shape[1]).to(x)
        slopes = [
            torch.autograd.grad(
                value[:, k].sum(), x, retain_graph=k + 1 < m, materialize_grads=True
            )[0]
            for k in range(m)
        ]
    return value.detach(), torch.nan_to_num(torch.stack(slopes, 1), 0.0, 0.0, 0.0)


def least_change_search(
    outputs: RowOutputs,
    target: Tensor,
    *,
    center: Tensor,
    lower: Tensor,
    upper: Tensor,
    accept: Accept,
    cost: RowFunction,
    scale: Tensor | None = None,
    steps: int = 20,
    budget: Budget | None = None,
) -> Found:
    """Find points whose outputs equal `target` (n, m) with little change from `center` (n, d).

    Each step solves `J delta = r` for the tangent with least `sum(delta^2 / D)`. With D = 1 that
    is the Euclidean distance; with D = scale |delta| of the step before it tends to the weighted
    L1 distance `sum(|delta| / scale)` (FOCUSS; Gorodnitsky and Rao, 1997). Columns that hit a
    bound are fixed there and the rest is solved again; steps that make outputs worse are halved.
    The last third of the steps corrects from where a row stands instead of from the centre.

    Args:
        outputs: what the model says.
        target: (n, m) wanted outputs.
        center: (n, d) rows.
        lower: (n, d) smallest values; columns with `lower == upper` never move.
        upper: (n, d) largest values.
        accept: acceptance test.
        cost: cost of accepted points.
        scale: (d,) units of the L1 distance, None for the Euclidean one.
        steps: Jacobians per row.
        budget: ends the search early.
    """
    best = Found.nothing(center)
    rows = torch.arange(len(center), device=center.device)
    x, share = center.clone(), torch.ones_like(center[:, :1])
    value, jacobian = row_jacobian(outputs, x, rows)
    miss = (value - target).abs().amax(1)
    weight = torch.ones_like(center) if scale is None else scale.expand_as(center)
    for step in range(steps + steps // 2):
        if not len(center) or (budget is not None and budget.expired):
            break
        base = center if step < steps else x
        share = torch.ones_like(share) if step == steps else share
        gap = target - value + torch.einsum("amd,ad->am", jacobian, x - base)
        goal = base + _solve(jacobian, gap, weight, lower - base, upper - base)
        trial = x + share * (goal - x)
        value_new, jacobian_new = row_jacobian(outputs, trial, rows)
        best.offer(trial, rows, accept, cost)
        miss_new = (value_new - target).abs().amax(1)
        # Close to the target the cost counts, not the last digit of the outputs.
        good = (miss_new < torch.maximum(miss, torch.full_like(miss, 2e-3)))[:, None]
        x, value = torch.where(good, trial, x), torch.where(good, value_new, value)
        jacobian = torch.where(good[:, None], jacobian_new, jacobian)
        miss = torch.where(good[:, 0], miss_new, miss)
        share = torch.where(good, (2 * share).clamp(max=1.0), share / 2)
        if scale is not None:
            weight = scale * ((x - center).abs() + 0.1 * 0.5**step)
    return best


def _solve(j: Tensor, gap: Tensor, weight: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Return the offset (a, d) of least weighted norm with `J delta = gap` inside a box."""
    j, gap, weight = j.double(), gap.double(), weight.double()
    low, high = lower.double(), upper.double()
    fixed, free = torch.zeros_like(weight), high > low
    delta = fixed
    for _ in range(CLIPS):
        d = torch.where(free, weight, torch.zeros_like(weight))
        rest = gap - torch.einsum("amd,ad->am", j, fixed)
        gram = (j * d[:, None]) @ j.transpose(1, 2)
        size = gram.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
        eye = torch.eye(j.shape[1], dtype=j.dtype, device=j.device)
        factor = torch.linalg.solve(gram + (RIDGE * size + 1e-12) * eye, rest[..., None])
        delta = fixed + d * (j.transpose(1, 2) @ factor)[..., 0]
        inside = torch.minimum(torch.maximum(delta, low), high)
        over = free & (inside != delta)
        if not bool(over.any()):
            break
        fixed, free = torch.where(over, inside, fixed), free & ~over
        delta = inside
    return delta.to(lower.dtype)
