"""Real rows inside a rule that have the target outcome: where their values lead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.edits import Price, edit_margins, settle
from cel.cf_methods.group_methods.tcrex_reach import Reach
from cel.cf_methods.group_methods.tcrex_rules import Rules, inside
from cel.cf_methods.problem import some_rows
from cel.cf_methods.query import MARGIN, Query
from cel.protocols import Task
from cel.space.region import Region

__all__ = ["Donors"]

CHUNK_DISTANCES = 2**22


@dataclass(frozen=True, kw_only=True, eq=False)
class Donors:
    """Training rows of every rule, to copy from.

    Attributes:
        x: (m, d) training rows.
        y: (m,) or (m, o) the model's outcomes.
        pools: for each rule the numbers of its donors.
        price: cost in bins; donors are near in it.
        movable: (d,) bool, columns that may be copied.
    """

    x: Tensor
    y: Tensor
    pools: tuple[Tensor, ...]
    price: Price
    movable: Tensor

    @classmethod
    def of(
        cls, rules: Rules, x: Tensor, y: Tensor, useful: Tensor, price: Price, *, limit: int,
        owner: Tensor, seed: int,
    ) -> Donors:  # fmt: skip
        """Take at most `limit` of the useful rows (m,) in each box."""
        member = inside(x.cpu().numpy(), rules.lower, rules.upper) & useful.cpu().numpy()
        pools = []
        for row in member:
            pool = torch.as_tensor(np.flatnonzero(row)).to(x.device)
            pools.append(pool[some_rows(x[pool], limit, seed)])
        movable = torch.as_tensor(price.movable).to(x.device)[owner]
        return cls(x=x, y=y, pools=tuple(pools), price=price, movable=movable)

    def nearest(self, query: Query, which: Tensor, tries: int) -> tuple[Tensor, Tensor]:
        """Return (donors (a, k), whether they exist (a, k)) of row i in rule `which[i]`.

        Of a regression pool only rows within the tolerance of the row's own target count.
        """
        k = min(tries, max((len(p) for p in self.pools), default=1))
        found = torch.zeros(len(query), k, dtype=torch.long, device=query.x.device)
        there = torch.zeros_like(found, dtype=torch.bool)
        for number in torch.unique(which).tolist():
            pool = self.pools[number]
            rows = (which == number).nonzero()[:, 0]
            for part in torch.split(rows, max(1, CHUNK_DISTANCES // max(len(pool), 1))):
                distance, place = self._distances(query, part, pool).topk(
                    min(k, len(pool)), dim=1, largest=False, sorted=True
                )
                found[part, : place.shape[1]] = pool[place]
                there[part, : place.shape[1]] = distance.isfinite()
        return found, there

    def _distances(self, query: Query, rows: Tensor, pool: Tensor) -> Tensor:
        scale = self.price.scale
        distance = torch.cdist(query.x[rows] * scale, self.x[pool] * scale, p=1.0)
        if query.model.task is Task.REGRESSION:
            gap = (self.y[pool].to(query.x)[None] - query.target[rows][:, None]).abs().amax(-1)
            distance = distance.masked_fill(gap > query.model.tolerance - MARGIN, torch.inf)
        return distance

    def goals(
        self, query: Query, which: Tensor, reach: Reach, nearest_point: Tensor, tries: int
    ) -> Tensor:
        """Return for every row the point at the end of its copying, inside its rule, (a, d).

        That is the nearest of `tries` donors with which the row reaches the target, or the
        nearest one if none does. What cannot be copied stays, or moves to the nearest point of
        the box.
        """
        found, there = self.nearest(query, which, tries)
        k, d = found.shape[1], query.x.shape[1]
        many, rules = query.select(query.rows().repeat(k)), which.repeat(k)
        usable = self.movable & there.T.reshape(-1, 1)
        copied = torch.where(usable, self.x[found.T.reshape(-1)], many.x)
        seen = _permitted(copied, many.region)
        wrong = reach.outside(seen, rules)[:, query.region.layout.owner]
        goals = torch.where(wrong, nearest_point.repeat(k, 1), seen).reshape(k, -1, d)
        works = (edit_margins(goals, query) >= MARGIN) & reach.contains(goals, which)
        best = works.to(torch.uint8).argmax(0)  # the first that works
        return goals[best, query.rows()]


def _permitted(x: Tensor, region: Region) -> Tensor:
    """Bring training rows (a, d) into the region of the rows that copy them."""
    if region.layout.ranks:
        snapped: Tensor = region.snap(x)
        return snapped
    barred = (x > 0.5) & ~region.reachable & ~region.layout.numeric
    for f in region.space.one_hot_features:
        columns = list(f.columns)
        stays = barred[:, columns].any(1, keepdim=True)
        x[:, columns] = torch.where(stays, region.origin[:, columns], x[:, columns])
    return settle(x[None], region)[0]
