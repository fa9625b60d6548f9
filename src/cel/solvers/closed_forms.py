"""Exact nearest points of a half-space inside a box, one problem per row.

Each row asks for the cheapest offset `delta` with `w . delta >= gap`, `lower <= delta <= upper`.
The three costs (Euclidean, weighted L1, elastic net with a pull towards a point) are
separable, so one number per row, the dual value of a unit of `w . delta`, determines the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cel.search.steppers import soft_threshold

__all__ = ["Nearest", "nearest_elastic", "nearest_l1", "nearest_l2"]

NEGLIGIBLE = 1e-9  # of a row's largest |w|: moving such a column cannot close a gap
FAR = 1e6  # stands for an infinite bound


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """Answers to n problems.

    Attributes:
        delta: (n, d) cheapest offsets; where no offset suffices, the one that comes closest.
        feasible: (n,) whether the gap can be closed inside the box.
        dual: (n,) the multiplier: what one more unit of gap would cost; (n, c) for c gaps.
    """

    delta: Tensor
    feasible: Tensor
    dual: Tensor


def nearest_l2(w: Tensor, gap: Tensor, lower: Tensor, upper: Tensor) -> Nearest:
    """Minimise `|delta|^2`: the projection onto the half-space, `delta = clip(mu w / 2)`.

    Args:
        w: (n, d) normals.
        gap: (n,) demanded `w . delta`.
        lower: (n, d) smallest offsets; may be above zero.
        upper: (n, d) largest offsets.

    >>> box = torch.ones(1, 2)
    >>> nearest_l2(torch.tensor([[3.0, 4.0]]), torch.tensor([5.0]), -box, box).delta
    tensor([[0.6000, 0.8000]])
    """
    return nearest_elastic(w, gap, lower, upper)


def nearest_elastic(
    w: Tensor,
    gap: Tensor,
    lower: Tensor,
    upper: Tensor,
    *,
    l1: Tensor | float = 0.0,
    pull: Tensor | None = None,
    theta: float = 0.0,
) -> Nearest:
    """Minimise `sum(l1 |delta|) + |delta|^2 + theta |delta - pull|^2`.

    For a dual value `mu` the cheapest offset is
    `clip(soft(mu w + 2 theta pull, l1) / (2 (1 + theta)), lower, upper)`, and `w . delta` never
    falls as `mu` rises; it is piecewise linear, so that the right dual value is found exactly.

    >>> box = torch.ones(1, 2)
    >>> nearest_elastic(torch.tensor([[3.0, 4.0]]), torch.tensor([2.0]), -box, box, l1=2.0).delta
    tensor([[0.0800, 0.4400]])
    """
    kind = w.dtype
    w, gap, lower, upper = (t.double() for t in (w, gap, lower, upper))
    w, scale = _drop_negligible(w), 2 * (1 + theta)
    weight = torch.as_tensor(l1, dtype=w.dtype, device=w.device).expand_as(w)
    shift = torch.zeros_like(w) if pull is None else 2 * theta * pull.double()

    def offset(dual: Tensor) -> Tensor:
        shrunk = soft_threshold(dual[:, None] * w + shift, weight) / scale
        return _clip(shrunk, lower, upper)

    low, high, ahead = _along(w, lower, upper, shift)
    rise = (scale * low.clamp(min=0) + weight, scale * high.clamp(min=0) + weight)
    fall = (scale * low.clamp(max=0) - weight, scale * high.clamp(max=0) - weight)
    parts = (rise,) if pull is None else (rise, fall)
    starts, ends = (torch.cat([_as_dual(part[i] - ahead, w) for part in parts], 1) for i in (0, 1))
    slope = (w.square() / scale).repeat(1, len(parts))
    dual = _dual_at(starts, ends, slope, gap - (w * offset(torch.zeros_like(gap))).sum(1))
    delta = offset(dual)
    feasible = (w * delta).sum(1) >= gap - 1e-9 * (1 + gap.abs())
    return Nearest(delta=delta.to(kind), feasible=feasible, dual=dual.to(kind))


def nearest_l1(
    w: Tensor, gap: Tensor, lower: Tensor, upper: Tensor, scale: Tensor | float = 1.0
) -> Nearest:
    """Minimise `sum(|delta| / scale)`: a continuous knapsack.

    Spend on the columns that buy most per unit of cost, `|w| scale`, until the gap is closed; the
    last one is bought in part (Dantzig, 1957).

    >>> box = torch.ones(1, 2)
    >>> nearest_l1(torch.tensor([[3.0, -4.0]]), torch.tensor([5.5]), -box, box).delta
    tensor([[ 0.5000, -1.0000]])
    """
    kind = w.dtype
    w, gap, lower, upper = (t.double() for t in (w, gap, lower, upper))
    w = _drop_negligible(w)
    unit = torch.as_tensor(scale, dtype=w.dtype, device=w.device).expand_as(w)
    base = _clip(torch.zeros_like(w), lower, upper)
    room = torch.where(w > 0, upper - base, base - lower).nan_to_num(posinf=1e12)
    gain = w.abs() * room
    order = (w.abs() * unit).argsort(dim=1, descending=True, stable=True)
    sorted_gain = gain.gather(1, order)
    before = sorted_gain.cumsum(1) - sorted_gain
    need = (gap - (w * base).sum(1))[:, None]
    share = ((need - before) / sorted_gain.clamp(min=1e-300)).clamp(0.0, 1.0)
    share = torch.zeros_like(gain).scatter(1, order, share)
    delta = base + share * room * w.sign()
    value = w.abs() * unit
    last = torch.where((share > 0) & (gain > 0), value, torch.full_like(value, torch.inf)).amin(1)
    dual = torch.where(last.isfinite(), 1 / last, torch.zeros_like(last))
    feasible = (w * delta).sum(1) >= gap - 1e-9 * (1 + gap.abs())
    return Nearest(delta=delta.to(kind), feasible=feasible, dual=dual.to(kind))


def _clip(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(x, lower), upper)


def _along(
    w: Tensor, lower: Tensor, upper: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Turn every column so that it helps upwards: bounds and shift in that direction."""
    up = w >= 0
    low, high = torch.where(up, lower, -upper), torch.where(up, upper, -lower)
    return low.clamp(min=-FAR), high.clamp(max=FAR), torch.where(up, shift, -shift)


def _as_dual(distance: Tensor, w: Tensor) -> Tensor:
    """Return the dual value at which a column has moved so far; 0 for columns that cannot help."""
    dual = distance.clamp(min=0) / w.abs().clamp(min=1e-300)
    return torch.where(w != 0, dual, torch.zeros_like(dual))


def _drop_negligible(w: Tensor) -> Tensor:
    return torch.where(w.abs() > NEGLIGIBLE * w.abs().amax(1, keepdim=True), w, 0.0 * w)


def _dual_at(starts: Tensor, ends: Tensor, slope: Tensor, need: Tensor) -> Tensor:
    """Return the dual value at which columns that work between two values have brought `need`.

    Column k brings `slope_k` per unit of it between `starts_k` and `ends_k`. The total is
    piecewise linear in it: sort the kinks, add up, interpolate on the piece that counts.

    Args:
        starts: (n, k) where columns begin to work.
        ends: (n, k) where they are exhausted; not before the start.
        slope: (n, k).
        need: (n,) wanted total.

    Returns:
        (n,) the smallest such value, the last kink where even that is too little, 0 for no need.
    """
    kinks, order = torch.cat([starts, ends], 1).sort(dim=1)
    change = torch.cat([slope, -slope], 1).gather(1, order)
    rate = change.cumsum(1)  # between this kink and the next
    brought = torch.cat([torch.zeros_like(need[:, None]), rate[:, :-1] * kinks.diff(dim=1)], 1)
    brought = brought.cumsum(1)  # up to this kink
    short = (brought < need[:, None]).sum(1, keepdim=True)  # kinks that come too early
    place = (short - 1).clamp(min=0)
    missing = need[:, None] - brought.gather(1, place)
    dual = kinks.gather(1, place) + missing / rate.gather(1, place).clamp(min=1e-300)
    dual = torch.where(short == kinks.shape[1], kinks[:, -1:], dual)
    return torch.where(need[:, None] > 0, dual, torch.zeros_like(dual))[:, 0]
