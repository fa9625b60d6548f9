"""From a rule to a counterfactual: how the features that the rule leaves open are filled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cel.cf_methods.edits import Price, edit_margins, settle
from cel.cf_methods.group_methods.tcrex_donors import Donors
from cel.cf_methods.group_methods.tcrex_reach import Reach
from cel.cf_methods.query import MARGIN, Query

__all__ = ["Completed", "Completion", "Order", "complete"]

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
    cost = donors.price(query.x[:, None], points).masked_fill(~works, torch.inf)
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
        pairs = _Pairs(query=query, reach=reach, price=donors.price, which=which)
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
    price: Price
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
    change = torch.zeros(must.shape, dtype=query.x.dtype, device=query.x.device)
    moved = (goal - query.x).abs() * pairs.price.scale
    change.index_add_(1, query.region.layout.owner, moved)
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
