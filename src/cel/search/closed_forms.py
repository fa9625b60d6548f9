"""Exact nearest points of a half-space inside a box, one problem per row.

Each row asks for the cheapest offset `delta` with `w . delta >= gap`, `lower <= delta <= upper`.
The three costs (Euclidean, weighted L1, elastic net with a pull towards a point) are
separable, so one number per row, the price of a unit of `w . delta`, determines the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Nearest", "nearest_elastic", "nearest_l1", "nearest_l2", "nearest_l2_all"]

NEGLIGIBLE = 1e-9  # of a row's largest |w|: moving such a column cannot close a gap
WIDENINGS = 6
TURNS = 15
LARGEST_RISE = 50.0


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """Answers to n problems.

    Attributes:
        delta: (n, d) cheapest offsets; where no offset suffices, the one that comes closest.
        feasible: (n,) whether the gap can be closed inside the box.
        price: (n,) the multiplier: what one more unit of gap would cost.
    """

    delta: Tensor
    feasible: Tensor
    price: Tensor


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

    For a price `mu` the cheapest offset is
    `clip(soft(mu w + 2 theta pull, l1) / (2 (1 + theta)), lower, upper)`, and `w . delta` never
    falls as `mu` rises: bisect and interpolate.

    >>> box = torch.ones(1, 2)
    >>> nearest_elastic(torch.tensor([[3.0, 4.0]]), torch.tensor([2.0]), -box, box, l1=2.0).delta
    tensor([[0.0800, 0.4400]])
    """
    kind = w.dtype
    w, gap, lower, upper = (t.double() for t in (w, gap, lower, upper))
    w = _drop_negligible(w)
    weight = torch.as_tensor(l1, dtype=w.dtype, device=w.device).expand_as(w)
    shift = torch.zeros_like(w) if pull is None else 2 * theta * pull.double()

    def offset(price: Tensor) -> Tensor:
        t = price[:, None] * w + shift
        shrunk = t.sign() * (t.abs() - weight).clamp(min=0) / (2 * (1 + theta))
        return torch.minimum(torch.maximum(shrunk, lower), upper)

    def reach(price: Tensor) -> Tensor:
        return (w * offset(price)).sum(1)

    room = torch.maximum(lower.abs(), upper.abs()).nan_to_num(posinf=1e6)
    full = (2 * (1 + theta) * room + weight + shift.abs()) / w.abs().clamp(min=1e-300)
    top = torch.where(w != 0, full, torch.zeros_like(w)).amax(1)
    price = _smallest_price(reach, gap, top, w.square().sum(1) / (2 * (1 + theta)))
    delta = offset(price)
    feasible = (w * delta).sum(1) >= gap - 1e-9 * (1 + gap.abs())
    return Nearest(delta=delta.to(kind), feasible=feasible, price=price.to(kind))


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
    base = torch.minimum(torch.maximum(torch.zeros_like(w), lower), upper)
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
    price = torch.where(last.isfinite(), 1 / last, torch.zeros_like(last))
    feasible = (w * delta).sum(1) >= gap - 1e-9 * (1 + gap.abs())
    return Nearest(delta=delta.to(kind), feasible=feasible, price=price.to(kind))


def nearest_l2_all(
    w: Tensor, gap: Tensor, lower: Tensor, upper: Tensor, sweeps: int = 8
) -> Nearest:
    """Minimise `|delta|^2` under several half-spaces at once, `w_c . delta >= gap_c`.

    Every constraint has a price; with the others held, the best price of one is found as for a
    single half-space, and the prices are swept over until they settle (coordinate ascent on the
    dual; Hildreth, 1957). Where no offset satisfies all, prices would grow without end; they are
    held at a multiple of their first values, so that the answer leans towards each demand.

    Args:
        w: (n, c, d) normals.
        gap: (n, c) demands.
        lower: (n, d) smallest offsets.
        upper: (n, d) largest offsets.
        sweeps: rounds over the constraints.

    Returns:
        offsets; `price` is (n, c).
    """
    if w.shape[1] == 1:
        one = nearest_l2(w[:, 0], gap[:, 0], lower, upper)
        return Nearest(delta=one.delta, feasible=one.feasible, price=one.price[:, None])
    kind = w.dtype
    w, gap, lower, upper = (t.double() for t in (w, gap, lower, upper))
    w = torch.stack([_drop_negligible(w[:, c]) for c in range(w.shape[1])], 1)
    room = torch.maximum(lower.abs(), upper.abs()).nan_to_num(posinf=1e6)
    price, cap = torch.zeros_like(gap), torch.full_like(gap, torch.inf)

    def offset(total: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(total / 2, lower), upper)

    for _ in range(sweeps):
        before = price.clone()
        for c in range(w.shape[1]):
            v = w[:, c]
            rest = (price[:, :, None] * w).sum(1) - price[:, c, None] * v
            full = torch.where(v != 0, (2 * room + rest.abs()) / v.abs().clamp(min=1e-300), 0.0)
            price[:, c] = _smallest_price(
                lambda m, v=v, rest=rest: (v * offset(m[:, None] * v + rest)).sum(1),  # type: ignore[misc]
                gap[:, c],
                torch.minimum(full.amax(1), cap[:, c]),
                v.square().sum(1) / 2,
            )
        cap = torch.minimum(cap, LARGEST_RISE * price.amax(1, keepdim=True))
        if bool(((price - before).abs() <= 1e-4 * before.abs() + 1e-9).all()):
            break
    delta = offset((price[:, :, None] * w).sum(1))
    reached = torch.einsum("ncd,nd->nc", w, delta)
    feasible = (reached >= gap - 1e-3 * (1 + gap.abs())).all(1)
    return Nearest(delta=delta.to(kind), feasible=feasible, price=price.to(kind))


def _drop_negligible(w: Tensor) -> Tensor:
    return torch.where(w.abs() > NEGLIGIBLE * w.abs().amax(1, keepdim=True), w, 0.0 * w)


def _smallest_price(
    reach: Callable[[Tensor], Tensor], gap: Tensor, top: Tensor, slope: Tensor
) -> Tensor:
    """Return the smallest price at which `reach(price) >= gap`, or `top` where none does.

    `reach` is piecewise linear and never falls. Its slope is at most `slope`, which bounds the
    price from below; from there the bracket is widened, then closed by turns of interpolation and
    bisection, which is exact once both ends lie on one piece.
    """
    at_zero = reach(torch.zeros_like(top))
    low = ((gap - at_zero).clamp(min=0) / slope.clamp(min=1e-300)).minimum(top)
    high = low
    for _ in range(WIDENINGS):
        high = torch.where(reach(high) < gap, (4 * high).minimum(top), high)
    high = torch.where(reach(high) < gap, top, high)
    at_low, at_high = reach(low), reach(high)
    for turn in range(TURNS):
        share = ((gap - at_low) / (at_high - at_low).clamp(min=1e-300)).clamp(0.0, 1.0)
        share = torch.full_like(share, 0.5) if turn % 3 == 2 else share
        middle = low + share * (high - low)
        value = reach(middle)
        enough = value >= gap
        high, at_high = torch.where(enough, middle, high), torch.where(enough, value, at_high)
        low, at_low = torch.where(enough, low, middle), torch.where(enough, at_low, value)
    return torch.where(at_zero >= gap, torch.zeros_like(high), high)
