"""From a rule to a counterfactual: real rows inside it, and how open features are filled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.explanations.cohort import some_rows
from cel.cf_methods.explanations.edits import BinCost, edit_margins, settle
from cel.cf_methods.group_methods.tcrex.boxes import Boxes, inside
from cel.cf_methods.group_methods.tcrex.reach import Reach
from cel.cf_methods.query import MARGIN, Query
from cel.protocols import Task
from cel.space.layout import by_feature
from cel.space.region import Region

__all__ = ["Completed", "Completion", "Donors", "Order", "complete"]

CHUNK_DISTANCES = 2**22


@dataclass(frozen=True, kw_only=True, eq=False)
class Donors:
    """Training rows of every rule, to copy from.

    Attributes:
        x: (m, d) training rows.
        y: (m,) or (m, o) the model's outcomes.
        pools: for each rule the numbers of its donors.
        bin_cost: cost in bins; donors are near in it.
        movable: (d,) bool, columns that may be copied.
    """

    x: Tensor
    y: Tensor
    pools: tuple[Tensor, ...]
    bin_cost: BinCost
    movable: Tensor

    @classmethod
    def of(
        cls, rules: Boxes, x: Tensor, y: Tensor, useful: Tensor, bin_cost: BinCost, *, limit: int,
        owner: Tensor, seed: int,
    ) -> Donors:  # fmt: skip
        """Take at most `limit` of the useful rows (m,) in each box."""
        member = inside(x.cpu().numpy(), rules.lower, rules.upper) & useful.cpu().numpy()
        pools = []
        for row in member:
            pool = torch.as_tensor(np.flatnonzero(row)).to(x.device)
            pools.append(pool[some_rows(x[pool], limit, seed)])
        movable = torch.as_tensor(bin_cost.movable).to(x.device)[owner]
        return cls(x=x, y=y, pools=tuple(pools), bin_cost=bin_cost, movable=movable)

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
        scale = self.bin_cost.scale
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


Completion = Literal["clip", "interior", "donor"]
Order = Literal["gain", "difference"]

MOST_LENGTHS = 64
FEW_DONORS = 4  # tried at first; rows that none of them helps try all
CHUNK_VALUES = 2**22


@dataclass(frozen=True, kw_only=True, eq=False)
class Completed:
    """One counterfactual per row.

    Attributes:
        x: (n, d), NaN where there is none.
        rule: (n,) the rule that it is in; the first one proposed if there is none; -1 if none is
            in reach.
    """

    x: Tensor
    rule: Tensor


def complete(
    query: Query, reach: Reach, donors: Donors, rules: Tensor, usable: Tensor, *,
    how: Completion, order: Order,
) -> Completed:  # fmt: skip
    """Answer rows by the rules (n, k) proposed to them, of which some are usable (n, k).

    Of the points that reach the target the cheapest in bins is kept; rules of a higher tier come
    last. If none does, "clip" and "interior" give their point for the first rule, which is what
    the rule says; "donor" gives none.
    """
    work = _Work(query=query, reach=reach, donors=donors, rules=rules, how=how, order=order)
    points, works = work.fill(usable, FEW_DONORS)
    if how == "donor":
        again = usable & ~works.any(1, keepdim=True)
        more, these = work.fill(again, max((len(p) for p in donors.pools), default=1))
        points, works = torch.where(these[..., None], more, points), works | these
    cost = donors.bin_cost(query.x[:, None], points).masked_fill(~works, torch.inf)
    cost = cost + 1e6 * reach.tier[rules]
    best, every = cost.argmin(1), query.rows()
    x, rule = points[every, best], rules[every, best]
    have = works.any(1)
    if how != "donor":
        moved = (x != query.x).any(1)
        have = have | (usable[:, 0] & moved & reach.contains(x, rule))
    rule = torch.where(usable.any(1), rule, -1)
    return Completed(x=torch.where(have[:, None], x, torch.nan), rule=rule)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Work:
    query: Query
    reach: Reach
    donors: Donors
    rules: Tensor
    how: Completion
    order: Order

    def fill(self, wanted: Tensor, tries: int) -> tuple[Tensor, Tensor]:
        """Return (points (n, k, d), whether they work (n, k)) for the wanted pairs (n, k)."""
        query, (n, k) = self.query, self.rules.shape
        points = query.x[:, None].expand(n, k, -1).clone()
        works = torch.zeros_like(wanted)
        row, slot = wanted.nonzero(as_tuple=True)
        copies = max(min(len(self.reach.space), MOST_LENGTHS), tries) + 4
        size = max(1, CHUNK_VALUES // (query.x.shape[1] * copies))
        for first in range(0, len(row), size):
            if query.budget.expired:
                break
            r, s = row[first : first + size], slot[first : first + size]
            points[r, s], works[r, s] = self._fill(r, self.rules[r, s], tries)
        return points, works

    def _fill(self, rows: Tensor, which: Tensor, tries: int) -> tuple[Tensor, Tensor]:
        query, reach, donors = self.query.select(rows), self.reach, self.donors
        pairs = _Pairs(query=query, reach=reach, bin_cost=donors.bin_cost, which=which)
        goal = reach.clip(query.region, which)
        if self.how != "clip":
            goal = donors.goals(query, which, reach, goal, tries)
        must = reach.outside(query.x, which)
        if self.how == "donor":
            return _prefixes(pairs, goal, must, self.order)
        point, works, _ = pairs.first(must[None], goal)
        return point, works


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pairs:
    """Row i of a query together with rule `which[i]`."""

    query: Query
    reach: Reach
    bin_cost: BinCost
    which: Tensor

    def mix(self, copied: Tensor, goal: Tensor) -> Tensor:
        """Take some features (l, a, p) from the goal (a, d), the others from the row."""
        region = self.query.region
        points = torch.where(copied[..., region.layout.owner], goal, self.query.x)
        # Both parts are feasible, so only relations between features can be broken.
        return settle(points, region) if region.space.constraints else points

    def works(self, points: Tensor) -> Tensor:
        """Tell which points (l, a, d) reach the target inside their rule, (l, a)."""
        reached = edit_margins(points, self.query) >= MARGIN
        return reached & self.reach.contains(points, self.which)

    def first(self, copied: Tensor, goal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (point, whether it works, its number) of the first mixture that works."""
        points = self.mix(copied, goal)
        works = self.works(points)
        number, every = works.to(torch.uint8).argmax(0), self.query.rows()
        return points[number, every], works[number, every], number


def _prefixes(pairs: _Pairs, goal: Tensor, must: Tensor, order: Order) -> tuple[Tensor, Tensor]:
    """Copy feature after feature from the goal until the target is reached.

    Up to 64 prefixes are tried at once; more features are first tried in steps, then singly
    between the last prefix that fails and the first that works.
    """
    rank, most = _ranks(pairs, goal, must, order)
    steps = torch.linspace(0, most, min(most + 1, MOST_LENGTHS)).round().to(rank)
    points, works, at = pairs.first(rank <= steps[:, None, None], goal)
    if most + 1 > MOST_LENGTHS:
        start = torch.where(at > 0, steps[(at - 1).clamp(min=0)] + 1, 0)
        gap = int((steps[at] - start).max())
        finer = start + torch.arange(gap + 1, device=rank.device)[:, None]
        points, works, _ = pairs.first(rank <= finer[..., None], goal)
    return points, works


def _ranks(pairs: _Pairs, goal: Tensor, must: Tensor, order: Order) -> tuple[Tensor, int]:
    """Return when each feature is copied (a, p) and the last time: 0, 1, 2, ..., p + 1 is never.

    By "difference" large changes come first; by "gain" those that alone, on top of what the rule
    asks for, bring the row closest to the target.
    """
    query = pairs.query
    moved = (goal - query.x).abs() * pairs.bin_cost.scale
    change = by_feature(moved, query.region.layout.owner, must.shape[1])
    extra = (change > 0) & ~must
    most = int(extra.sum(1).max())
    rank = _descending(change, extra, must)
    if order == "gain" and 1 < most < MOST_LENGTHS:
        number = torch.arange(1, most + 1, device=rank.device)[:, None, None]
        margin = edit_margins(pairs.mix(must | (rank == number), goal), query)
        alone = margin.T.gather(1, rank.clamp(1, most) - 1)
        rank = _descending(alone, extra, must)
    return rank, most


def _descending(score: Tensor, extra: Tensor, must: Tensor) -> Tensor:
    score = score.masked_fill(~extra, -torch.inf)
    rank = score.argsort(dim=1, descending=True, stable=True).argsort(1) + 1
    return torch.where(must, 0, torch.where(extra, rank, score.shape[1] + 1))
