"""Exact nearest points of several half-spaces and a box, one problem per row.

Rows ask for the cheapest offset with `w_c . delta >= gap_c` for all c, `lower <= delta <= upper`.
One half-space has a closed form (`cel.solvers.closed_forms`). With several, the one that is missed
most is solved first; where its answer satisfies the others it is the answer, and the rows that
are left are solved together by a primal-dual interior point method (Mehrotra, 1992): some twenty
Newton steps whatever the data, on systems with one unknown per half-space.

Offsets are split into rise and fall, so that the L1 norm is linear, and each half-space may be
missed at a high cost. Every program then has solutions, an interior and a place to start from:
rows without a feasible offset end where they miss least; their dual values prove that.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from cel.solvers.closed_forms import FAR, Nearest, nearest_elastic, nearest_l1
from cel.solvers.few_duals import nearest_few

__all__ = ["nearest_all", "proved_empty"]

ITERATIONS = 50
CHUNK = 2**17  # coefficients of the programs that are solved together
EXACT = 1e-9  # relative gap of cost and bound at which a row ends
SMALL = 1e-3  # costs below this count as this
RIDGE = 1e-14  # of the diagonal
NEGLIGIBLE = 1e-6  # of a gap: normals this short cannot close it
FIXED = 1e-12  # room of a column that cannot move
ZERO = 1e-9  # room that is left at a bound that holds
NOTHING = 1e-9  # missed by rounding alone
MISS = 1e-7  # of a half-space, in units of its largest coefficient, that still counts as met
DEAREST = 1e4  # cost of missing a half-space, in units of the dearest offset
BACK = 0.999  # of the way to the border of the positive numbers
FEW = 4  # half-spaces whose dual values are searched directly


def nearest_all(
    w: Tensor,
    gap: Tensor,
    lower: Tensor,
    upper: Tensor,
    *,
    l1: Tensor | float = 0.0,
    square: float = 1.0,
    pull: Tensor | None = None,
    theta: float = 0.0,
    lean: bool = False,
) -> Nearest:
    """Minimise `sum(l1 |delta|) + square |delta|^2 + theta |delta - pull|^2`.

    Args:
        w: (n, c, d) normals.
        gap: (n, c) demands.
        lower: (n, d) smallest offsets; may be above zero.
        upper: (n, d) largest offsets.
        l1: weights of |delta|, (d,) or (n, d); positive where `square` and `theta` are 0.
        square: weight of the squares, 0 or 1.
        pull: (n, d) a point that attracts.
        theta: its weight.
        lean: search the dual values of a few half-spaces directly where squares alone count, and
            leave columns that cannot move out of the programs: equal but for rounding.

    Returns:
        offsets; `dual` is (n, c). Where not all demands can be met, their sum is missed least.

    >>> w, box = torch.tensor([[[1.0, 0.0], [1.0, 2.0]]]), torch.ones(1, 2)
    >>> nearest_all(w, torch.tensor([[0.5, 1.5]]), -box, box).delta
    tensor([[0.5000, 0.5000]])
    """
    kind = w.dtype
    w, gap, lower, upper = (t.double() for t in (w, gap, lower, upper))
    weight = torch.as_tensor(l1, dtype=w.dtype, device=w.device).expand_as(lower)
    moves = (upper > lower).any(0)
    if lean and bool(moves.any()) and not bool(moves.all()):
        gap = gap - _times(w[..., ~moves], lower[:, ~moves])
        best = nearest_all(
            w[..., moves], gap, lower[:, moves], upper[:, moves], l1=weight[:, moves],
            square=square, pull=None if pull is None else pull[:, moves], theta=theta, lean=True,
        )  # fmt: skip
        whole = lower.masked_scatter(moves.expand_as(lower), best.delta)
        return Nearest(delta=whole.to(kind), feasible=best.feasible, dual=best.dual.to(kind))
    size = w.abs().amax(2).clamp(min=1e-300)
    first, rows = (gap / size).argmax(1), torch.arange(len(w), device=w.device)
    one = w[rows, first], gap[rows, first], lower, upper
    if square or theta:
        best = nearest_elastic(*one, l1=weight, pull=pull, theta=theta)
    else:
        best = nearest_l1(*one, 1 / weight)
    delta, feasible, dual = best.delta, best.feasible, torch.zeros_like(gap)
    dual[rows, first] = best.dual
    left = ((gap - _times(w, delta)) / size > NOTHING).any(1).nonzero()[:, 0]
    if lean and 1 < w.shape[1] <= FEW and square == 1 and not theta and not weight.any():
        given = tuple(t[left] for t in (w, gap, lower, upper, dual))
        offset, value, done = nearest_few(*given, dearest=DEAREST)
        here = left[done]
        delta[here], dual[here] = offset[done], value[done]
        feasible[here] = ((gap[here] - _times(w[here], delta[here])) / size[here] <= MISS).all(1)
        left = left[~done]
    shift = torch.zeros_like(lower) if pull is None else 2 * theta * pull.double()
    count = max(1, CHUNK // (w.shape[1] * w.shape[2]))
    for at in torch.split(left, count) if w.shape[1] > 1 else ():
        parts = [t[at] for t in (w, gap, lower, upper, weight, shift)]
        many = _interior(2 * (square + theta), *parts, lean=lean)
        delta[at], feasible[at], dual[at] = many.delta, many.feasible, many.dual
    return Nearest(delta=delta.to(kind), feasible=feasible, dual=dual.to(kind))


def proved_empty(w: Tensor, gap: Tensor, lower: Tensor, upper: Tensor, dual: Tensor) -> Tensor:
    """Tell (n,) whether dual values (n, c) prove that no offset meets all demands (Farkas, 1902).

    No point of the box brings `sum dual_c gap_c` on the combined normal.
    """
    w, gap, lower, upper, dual = (t.double() for t in (w, gap, lower, upper, dual))
    dual = dual / dual.amax(1, keepdim=True).clamp(min=1e-300)
    v = _times(w.mT, dual)
    most = torch.where(v > 0, v * upper, v * lower).nan_to_num(nan=0.0).sum(1)
    return most < (dual * gap).sum(1) - 1e-9 * (dual * w.abs().amax(2)).sum(1)


# -- the interior point method ---------------------------------------------------------------


@dataclass
class _Programs:
    """Minimise `cost . u + curve u^2 / 2 + DEAREST sum(e)`, `0 <= u <= room`, `w u + e >= gap`.

    u (n, 2d) holds rises and falls, e (n, c) what is missing. With `t = room - u` and
    `z = w u + e - gap`, a point is `p = [u, t, e, z]` and its multipliers `q = [a, b, f, y]`, all
    positive. They are optimal when the products p q vanish and
    `cost + curve u = w' y + a - b`, `f = DEAREST - y`.
    """

    w: Tensor  # (n, c, 2d), largest coefficients 1
    gap: Tensor
    cost: Tensor  # largest slopes 1
    curve: Tensor
    room: Tensor

    def select(self, rows: Tensor) -> _Programs:
        return _Programs(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def split(self, p: Tensor) -> tuple[Tensor, ...]:
        many, few = self.w.shape[2], self.w.shape[1]
        return torch.split_with_sizes(p, [many, many, few, few], 1)

    def start(self) -> tuple[Tensor, Tensor]:
        """Return the middle of the boxes: products are equal but for a tenth of what is missed."""
        u = self.room.clamp(max=1.0) / 2
        mean, over = u.mean(1, keepdim=True), _times(self.w, u) - self.gap
        z = torch.maximum(over, mean)
        f = DEAREST - mean / z
        p = torch.cat([u, self.room - u, torch.maximum(mean / f, -over / 10), z], 1)
        a, b, _, y = self.split(mean / p)
        return p, torch.cat([a, b, f, y], 1)

    def value(self, p: Tensor) -> Tensor:
        u, _, e, _ = self.split(p)
        return (self.cost * u + self.curve * u.square() / 2).sum(1) + DEAREST * e.sum(1)


class _Newton:
    """The Newton equations of the conditions at a point, factorised; one unknown per demand."""

    def __init__(self, g: _Programs, p: Tensor, q: Tensor) -> None:
        self.g, self.p, self.q = g, p, q
        (u, t, e, z), (a, b, f, y) = g.split(p), g.split(q)
        self.dual = g.cost + g.curve * u - _times(g.w.mT, y) - a + b
        self.primal = _times(g.w, u) + e - z - g.gap
        self.loose = 1 / (g.curve + a / u + b / t)
        matrix = (g.w * self.loose[:, None]) @ g.w.mT
        diagonal = e / f + z / y + RIDGE * matrix.diagonal(dim1=1, dim2=2)
        self.factor, _ = torch.linalg.cholesky_ex(matrix + torch.diag_embed(diagonal))

    def settled(self) -> Tensor:
        """Tell (n,) which rows have both residuals and the gap of cost and bound closed."""
        value = self.g.value(self.p).abs() + SMALL
        open_ = torch.maximum(self.primal.abs().amax(1), self.dual.abs().amax(1))
        return ((self.p * self.q).sum(1) <= EXACT * value) & (open_ <= EXACT * 10)

    def direction(self, products: Tensor) -> tuple[Tensor, Tensor]:
        """Return the step after which the products p q change by so much, to first order."""
        g = self.g
        (u, t, e, z), (a, b, f, y) = g.split(self.p), g.split(self.q)
        ru, rt, re, rz = g.split(products)
        push = ru / u - rt / t - self.dual
        right = rz / y - re / f - self.primal - _times(g.w, self.loose * push)
        dy = torch.cholesky_solve(right[..., None], self.factor)[..., 0]
        du = self.loose * (_times(g.w.mT, dy) + push)
        dp = torch.cat([du, -du, (re + e * dy) / f, (rz - z * dy) / y], 1)
        dq = torch.cat([(ru - a * du) / u, (rt + b * du) / t, -dy, dy], 1)
        return dp, dq

    def step(self) -> tuple[Tensor, Tensor]:
        """Return point and multipliers after a step to where the products fall and are equal."""
        p, q = self.p, self.q
        now = p * q
        dp, dq = self.direction(-now)
        reach = _reach(p, q, dp, dq)
        then = ((p + reach * dp) * (q + reach * dq)).mean(1, keepdim=True)
        mean = now.mean(1, keepdim=True)
        goal = mean * (then / mean).clamp(0, 1) ** 3
        dp, dq = self.direction(goal - now - dp * dq)
        reach = BACK * _reach(p, q, dp, dq)
        return p + reach * dp, q + reach * dq


def _times(w: Tensor, u: Tensor) -> Tensor:
    return (w @ u[..., None])[..., 0]


def _reach(p: Tensor, q: Tensor, dp: Tensor, dq: Tensor) -> Tensor:
    """Return the share (n, 1) of a step, at most 1, at which the first number becomes zero."""
    falls = torch.maximum((-dp / p).amax(1), (-dq / q).amax(1))
    return (1 / falls.clamp(min=1.0))[:, None]


def _solve(g: _Programs) -> tuple[Tensor, Tensor]:
    """Return points and multipliers; rows leave the batch as soon as they have settled."""
    p, q = g.start()
    last = p.clone(), q.clone()
    at = torch.arange(len(p), device=p.device)
    for _ in range(ITERATIONS):
        newton = _Newton(g, p, q)
        p, q = newton.step()
        going = ~newton.settled() & (p + q).isfinite().all(1)
        last[0][at], last[1][at] = newton.p, newton.q
        if not bool(going.all()):
            keep = going.nonzero()[:, 0]
            g, p, q, at = g.select(keep), p[keep], q[keep], at[keep]
        if not len(at):
            break
    return last


def _interior(
    curve: float,
    w: Tensor,
    gap: Tensor,
    lower: Tensor,
    upper: Tensor,
    l1: Tensor,
    shift: Tensor,
    *,
    lean: bool,
) -> Nearest:
    """Minimise `sum(l1 |delta|) - shift . delta + curve |delta|^2 / 2`.

    Offsets are counted from the point of the box that is nearest to zero: from there, the L1 norm
    grows both ways.
    """
    base = torch.minimum(torch.maximum(torch.zeros_like(lower), lower), upper)
    room = torch.cat([upper - base, base - lower], 1).clamp(max=FAR)
    free, slope = room > FIXED, curve * base - shift
    cost = torch.cat([l1 + slope, l1 - slope], 1)
    both = torch.cat([w, -w], 2) * free[:, None]
    gap = gap - _times(w, base)
    place, whole = None, torch.zeros_like(room)
    most = int(free.sum(1).amax()) if len(free) else 0
    if lean and 0 < most < free.shape[1]:
        place = (~free).to(torch.int8).argsort(dim=1, stable=True)[:, :most]
        free, room, cost = (t.gather(1, place) for t in (free, room, cost))
        both = both.gather(2, place[:, None].expand(-1, both.shape[1], -1))
    size = torch.maximum(both.abs().amax(2), NEGLIGIBLE * gap.abs()).clamp(min=1e-300)
    unit = room.clamp(FIXED, 1.0).amax(1, keepdim=True)
    top = (cost.abs().amax(1, keepdim=True) + curve * unit).clamp(min=1e-300)
    g = _Programs(
        w=both / size[..., None],
        gap=gap / (size * unit),
        cost=torch.where(free, cost / top, torch.ones_like(cost)),
        curve=curve * unit / top,
        room=torch.where(free, room / unit, torch.ones_like(room)),
    )
    p, q = _solve(g)
    (u, t, _, _), (a, b, _, y) = g.split(p), g.split(q)
    u = torch.where((u < ZERO) & (u < a), torch.zeros_like(u), u)
    u = torch.where((t < ZERO) & (t < b), g.room, u) * free
    moved = u if place is None else whole.scatter(1, place, u)
    up, down = (moved * unit).chunk(2, 1)
    met = (_times(g.w, u) >= g.gap - MISS).all(1)
    return Nearest(delta=base + up - down, feasible=met, dual=y * top / size)
