"""Which categories to act on: every choice where there are few, the most helpful elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.space.causal import StructuralModel
from cel.space.layout import by_feature
from cel.space.region import Region

__all__ = ["CategoryPlans", "category_plans", "switched_features"]


@dataclass(frozen=True, eq=False)
class CategoryPlans:
    """Choices of categories for n rows, m for each.

    Attributes:
        switch: (n, m, d) what is added to one-hot columns; the first choice is to leave all.
        ready: (n, m) bool, whether a row may make the choice.
        price: (n, m) what it costs: the weight of each feature that changes.
        complete: (n,) bool, whether a row has no other choice.
    """

    switch: Tensor
    ready: Tensor
    price: Tensor
    complete: Tensor


def category_plans(query: Query, region: Region, scm: StructuralModel, most: int) -> CategoryPlans:
    """Return at most `most` choices of categories per row, besides leaving them.

    All combinations, if there are no more than that; otherwise the single switches that raise the
    margin most, consequences included, and the best of each feature one after the other.

    Args:
        query: rows and targets.
        region: what each row may do.
        scm: what follows from a switch.
        most: choices per row, beyond the one to change nothing.
    """
    lay = region.layout
    open_ = region.reachable & ~region.fixed & ~lay.numeric
    blocks = [list(f.columns) for f in region.space.one_hot_features]
    blocks = [b for b in blocks if bool(open_[:, b].any())]
    stay = torch.zeros_like(query.x)[:, None]
    if not blocks or not most:
        switch, ready = stay, torch.ones_like(stay[..., 0], dtype=torch.bool)
        return _priced(region, switch, ready, ~open_.any(1))
    if prod(map(len, blocks)) - 1 <= most:
        switch, ready = _all_choices(query, open_, blocks)
        return _priced(region, switch, ready, (switch[:, 0] == 0).all(1))
    switch, ready = _helpful_choices(query, region, scm, open_, most)
    return _priced(region, switch, ready, ~open_.any(1))


def _priced(region: Region, switch: Tensor, ready: Tensor, complete: Tensor) -> CategoryPlans:
    weight = torch.as_tensor(region.space.vector("weight")).to(switch)
    return CategoryPlans(switch, ready, (switch.clamp(min=0) * weight).sum(2), complete)


def _all_choices(query: Query, open_: Tensor, blocks: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Return every combination of categories: switches (n, m, d), the row's own first."""
    columns = sorted(c for b in blocks for c in b)
    combined = torch.tensor(list(product(*blocks)), device=query.x.device)  # (m, blocks)
    wanted = torch.zeros(len(combined), query.x.shape[1]).to(query.x).scatter_(1, combined, 1.0)
    switch = torch.zeros(len(query), *wanted.shape).to(query.x)
    switch[..., columns] = wanted[:, columns] - query.x[:, None, columns]
    ready = ((switch <= 0) | open_[:, None]).all(2)
    own = (switch == 0).all(2)
    order = own.to(torch.int8).argsort(dim=1, descending=True, stable=True)
    return switch.gather(1, order[..., None].expand_as(switch)), ready.gather(1, order)


@torch.no_grad()
def _helpful_choices(
    query: Query, region: Region, scm: StructuralModel, open_: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """Return the best single switches, and the best of each feature added up, best first."""
    x, owner = query.x, region.layout.owner
    gain = torch.full_like(x, -torch.inf)
    for j in open_.any(0).nonzero()[:, 0].tolist():  # columns, not rows
        at = (open_[:, j] & (x[:, j] < 0.5)).nonzero()[:, 0]
        gain[at, j] = query.model.margin(
            scm.follow(x[at], _one(x[at], owner, j), _acted(owner, j, len(at))), query.target[at]
        )
    singles = gain.argsort(dim=1, descending=True, stable=True)[:, : max(1, most // 2)]
    parts = [torch.zeros_like(x)]
    parts += [_switches(x, owner, singles[:, k]) for k in range(singles.shape[1])]
    ready = [torch.ones_like(x[:, 0], dtype=torch.bool)]
    ready += [
        gain.gather(1, singles[:, k : k + 1])[:, 0].isfinite() for k in range(len(parts) - 1)
    ]
    chain, left = torch.zeros_like(x), gain.clone()
    for k in range(most - len(parts) + 2):
        best, column = left.max(1)
        if not bool(best.isfinite().any()):
            break
        more = best.isfinite()
        chain = torch.where(more[:, None], chain + _switches(x, owner, column), chain)
        left = left.masked_fill(owner[None] == owner[column][:, None], -torch.inf)
        if k:  # the first link is the best single switch
            parts.append(chain)
            ready.append(more)
    return torch.stack(parts, 1), torch.stack(ready, 1)


def _one(x: Tensor, owner: Tensor, column: int) -> Tensor:
    return _switches(x, owner, torch.full((len(x),), column, device=x.device))


def _switches(x: Tensor, owner: Tensor, column: Tensor) -> Tensor:
    """Return what to add to rows (a, d) to switch one-hot columns (a,) on."""
    block = owner[None] == owner[column][:, None]
    wanted = torch.nn.functional.one_hot(column, x.shape[1]).to(x)
    return torch.where(block, wanted - x, torch.zeros_like(x))


def _acted(owner: Tensor, column: int, rows: int) -> Tensor:
    out = torch.zeros(rows, int(owner.max()) + 1, dtype=torch.bool, device=owner.device)
    out[:, owner[column]] = True
    return out


def switched_features(switch: Tensor, owner: Tensor, features: int) -> Tensor:
    """Return (a, p) bool, which features the switches (a, d) change."""
    return by_feature(switch.abs(), owner, features) > 0
