"""Moving rows along directions, and the smallest scalar of every row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cel.cf_methods.explanations.edits import BinCost, settle
from cel.cf_methods.query import MARGIN, Query
from cel.protocols import Task
from cel.space import FeatureSpace
from cel.space.region import Region

__all__ = ["Directions", "Scalars", "reach", "smallest_scalars"]

NEVER = 1e30  # a scalar that no search reaches
JUST_AFTER = 1 + 1e-5


@dataclass(frozen=True, kw_only=True, eq=False)
class Directions:
    """D directions in a space of d columns and p features.

    On a one-hot block with translation e and m = argmax e, `argmax(x + k e)` leaves category i for
    m exactly when k > 1 / (e_m - e_i) (Ley et al., 2023). So a direction is a shift of the numbers
    plus, per block, one goal and one leaving scalar per category.

    Attributes:
        delta: (D, d) translations of unit cost.
        shift: (D, d) their numeric part.
        leave: (D, d) scalar after which a row in a category leaves it, `NEVER` if it does not.
        goal: (D, d) 1 at the goal of every block.
        hot: (h,) one-hot columns.
        block: (h,) block of each of them, 0..g-1.
    """

    delta: Tensor
    shift: Tensor
    leave: Tensor
    goal: Tensor
    hot: Tensor
    block: Tensor

    @classmethod
    def of(cls, delta: Tensor, space: FeatureSpace, bin_cost: BinCost) -> Directions:
        """Scale translations (D, d) to unit cost and work out their breakpoints."""
        cost = (delta.abs() @ bin_cost.scale).clamp(min=1e-12)
        delta = delta / cost[:, None]
        leave, goal, shift = torch.zeros_like(delta), torch.zeros_like(delta), delta.clone()
        hot: list[int] = []
        block: list[int] = []
        for number, f in enumerate(space.one_hot_features):
            columns = list(f.columns)
            allowed = torch.tensor(f.allowed_mask, device=delta.device)
            part = delta[:, columns]
            best, where = part.masked_fill(~allowed, -torch.inf).max(1)
            gap = best[:, None] - part
            leave[:, columns] = torch.where(gap > 1e-9, 1 / gap.clamp(min=1e-9), NEVER)
            goal[:, columns] = torch.nn.functional.one_hot(where, len(columns)).to(delta)
            shift[:, columns] = 0
            hot, block = hot + columns, block + [number] * len(columns)
        places = (torch.tensor(v, dtype=torch.long, device=delta.device) for v in (hot, block))
        hot_at, block_at = places
        return cls(delta=delta, shift=shift, leave=leave, goal=goal, hot=hot_at, block=block_at)

    def __len__(self) -> int:
        return len(self.delta)

    def select(self, which: Any) -> Directions:
        """Return some directions."""
        names = ("delta", "shift", "leave", "goal")
        return replace(self, **{n: getattr(self, n)[which] for n in names})

    def leaving(self, x: Tensor) -> Tensor:
        """Return the scalars (D, n, g) after which each row of `x` (n, d) leaves its category."""
        blocks = int(self.block.max()) + 1 if len(self.block) else 0
        out = torch.zeros(len(self), len(x), blocks, dtype=x.dtype, device=x.device)
        present = (x[:, self.hot] > 0.5).to(x.dtype)
        return out.index_add_(2, self.block, present[None] * self.leave[:, None, self.hot])

    def points(self, x: Tensor, k: Tensor, leaving: Tensor | None = None) -> Tensor:
        """Move row i of `x` (n, d) by scalar `k` (D, n) along every direction, (D, n, d)."""
        out = x + k[..., None] * self.shift[:, None]
        if len(self.hot):
            after = self.leaving(x) if leaving is None else leaving
            gone = (k[..., None] > after)[..., self.block]
            out[..., self.hot] = torch.where(gone, self.goal[:, None, self.hot], x[:, self.hot])
        return out

    def settled(
        self, region: Region, k: Tensor, bin_cost: BinCost | None, leaving: Tensor | None = None
    ) -> Tensor:
        """Return the moved rows inside their regions, (D, n, d); a cost clips to its range."""
        return settle(self.points(region.origin, k, leaving), region, bin_cost, outward=False)

    def largest(self, bin_cost: BinCost, clip: bool = True) -> Tensor:
        """Return a scalar (D,) beyond which nothing changes, or which is hopelessly dear."""
        width = (bin_cost.high - bin_cost.low).clamp(min=0) if clip else torch.inf
        ends = torch.where(self.shift != 0, width / self.shift.abs().clamp(min=1e-12), 0).amax(1)
        breaks = torch.where(self.leave < NEVER, self.leave, 0).amax(1)
        return torch.maximum(ends, breaks * JUST_AFTER).clamp(min=1e-3, max=4 * bin_cost.largest)

    def grid(self, bin_cost: BinCost, count: int, clip: bool = True) -> Tensor:
        """Return geometric scalars (D, count) from a thousandth of the largest, at most 0.05."""
        last = self.largest(bin_cost, clip)
        first = (last / 1000).clamp(max=0.05)
        share = torch.linspace(0, 1, count, dtype=last.dtype, device=last.device)
        return first[:, None] * (last / first)[:, None] ** share

    def breakpoints(self, region: Region, bin_cost: BinCost | None, limit: int = 32) -> Tensor:
        """Return row-wise scalars (n, b) of ONE direction where its path has a corner.

        They are the category changes, and the bounds that numbers run into (the `limit` dearest
        numbers only). Scalars that do not exist are 0.
        """
        x = region.origin
        labels = self.leaving(x)[0]
        labels = torch.where(labels < NEVER / 2, labels * JUST_AFTER, 0)
        low, high = region.lower, region.upper
        if bin_cost is not None:
            low, high = torch.maximum(low, bin_cost.low), torch.minimum(high, bin_cost.high)
        moved = self.shift[0].abs().argsort(descending=True, stable=True)[:limit]
        moved = moved[self.shift[0, moved] != 0]
        rate = self.shift[0, moved]
        room = torch.where(rate > 0, high[:, moved] - x[:, moved], x[:, moved] - low[:, moved])
        ends = (room / rate.abs()).clamp(min=0)
        ends = torch.where(ends.isfinite(), ends, 0)
        return torch.cat([labels, ends], 1)


PRECISION = 2e-7  # of a scalar
SLICE = 8  # scalars tried at a time; rows that succeed leave


@dataclass(frozen=True, kw_only=True, eq=False)
class Scalars:
    """Per row: the point (n, d) with NaN, whether it was found, its scalar and its cost."""

    x: Tensor
    ok: Tensor
    k: Tensor
    cost: Tensor


def reach(points: Tensor, query: Query) -> tuple[Tensor, Tensor]:
    """Ask the model about points (e, n, d): (gone far enough (e, n), accepted (e, n)).

    For classes both are the same. For values "far enough" means that the prediction has come
    within a fifth of the tolerance of the target, or passed it.
    """
    e, n, d = points.shape
    scores = query.model.scores(points.reshape(e * n, d))
    target = query.target.expand(e, *query.target.shape).reshape(e * n, *query.target.shape[1:])
    ok = query.model.margin_of(scores, target).reshape(e, n) >= MARGIN
    if query.model.task is Task.CLASSIFICATION:
        return ok, ok
    gap = (scores - target).reshape(e, n)
    start = query.model.scores(query.x) - query.target
    passed = gap * -start[:, 0].sign() >= -query.model.tolerance / 5
    return passed, ok


def smallest_scalars(
    direction: Directions, query: Query, bin_cost: BinCost, *, clip: bool, count: int, steps: int
) -> Scalars:
    """Find the first scalar that works for each row, then bisect down to the boundary.

    Flips need not be monotone in the scalar: the bracket is (last scalar before the first
    success, first success], with every corner of the path among the scalars.

    Args:
        direction: ONE direction.
        query: the rows.
        bin_cost: cost in bins.
        clip: whether numbers stay in the training range.
        count: size of the geometric grid.
        steps: bisections.
    """
    n = len(query)
    bounds = bin_cost if clip else None
    grid = direction.grid(bin_cost, count, clip)[0]
    own = direction.breakpoints(query.region, bounds)
    ks = torch.cat([grid.expand(n, -1), own.clamp(max=float(grid[-1]))], 1).sort(1).values
    low, high, spare = _bracket(direction, query, bounds, ks)
    rows = high.isfinite().nonzero()[:, 0]
    part, lo, hi = query.select(rows), low[rows], high[rows]
    leaving = direction.leaving(part.x)
    for _ in range(steps):
        if query.budget.expired or not bool((hi - lo > PRECISION * hi).any()):
            break
        middle = (lo + hi) / 2
        far, _ = reach(direction.settled(part.region, middle[None], bounds, leaving), part)
        hi = torch.where(far[0], middle, hi)
        lo = torch.where(far[0], lo, middle)
    high[rows] = hi
    best = _accepted(direction, query, bounds, high, bin_cost)
    return _cheaper(best, _accepted(direction, query, bounds, spare, bin_cost))


def _bracket(
    direction: Directions, query: Query, bounds: BinCost | None, ks: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (low, high, first accepted) of every row; infinite where there is none."""
    high = torch.full_like(query.x[:, 0], torch.inf)
    low, spare = torch.zeros_like(high), high.clone()
    live = query.rows()
    for start in range(0, ks.shape[1], SLICE):
        if not len(live) or query.budget.expired:
            break
        part = query if len(live) == len(query) else query.select(live)
        k = ks[live, start : start + SLICE]
        leaving = direction.leaving(part.x)
        points = [direction.settled(part.region, c[None], bounds, leaving)[0] for c in k.T]
        far, ok = reach(torch.stack(points), part)
        before = torch.cat([low[live, None], k[:, :-1]], 1)
        first = far.to(torch.uint8).argmax(0)[:, None]
        hit = far.any(0)
        high[live] = torch.where(hit, k.gather(1, first)[:, 0], torch.inf)
        low[live] = torch.where(hit, before.gather(1, first)[:, 0], k[:, -1])
        fits = k.gather(1, ok.to(torch.uint8).argmax(0)[:, None])[:, 0]
        spare[live] = torch.minimum(spare[live], torch.where(ok.any(0), fits, torch.inf))
        live = live[~hit]
    return low, high, spare


def _accepted(
    direction: Directions, query: Query, bounds: BinCost | None, k: Tensor, bin_cost: BinCost
) -> Scalars:
    """Build, snap and verify the points of given scalars."""
    rows = k.isfinite().nonzero()[:, 0]
    x = torch.full_like(query.x, torch.nan)
    ok = torch.zeros_like(rows.new_empty(len(query)), dtype=torch.bool)
    cost = torch.full_like(k, torch.inf)
    if len(rows):
        part = query.select(rows)
        point = direction.settled(part.region, k[rows][None], bounds)[0]
        seen, good = query.accept(point, rows)
        kept = rows[good]
        x[kept], ok[kept], cost[kept] = seen[good], True, bin_cost(query.x[kept], seen[good])
    return Scalars(x=x, ok=ok, k=torch.where(ok, k, torch.nan), cost=cost)


def _cheaper(a: Scalars, b: Scalars) -> Scalars:
    """Keep `a` where it was found, else `b`."""
    return Scalars(
        x=torch.where(a.ok[:, None], a.x, b.x),
        ok=a.ok | b.ok,
        k=torch.where(a.ok, a.k, b.k),
        cost=torch.where(a.ok, a.cost, b.cost),
    )
