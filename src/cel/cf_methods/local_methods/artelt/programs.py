"""From rows and mixture components to convex programs, and from their solutions to answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.solvers.admm import Programs
from cel.solvers.ellipsoid import Ellipsoids

__all__ = [
    "Setting",
    "best_per_row",
    "case_rows",
    "finish",
    "linear_programs",
    "make_programs",
    "modal_rows",
    "rivals",
]

_PULLS = 16  # points tried on the way to the centre of a component
_SLACK = 1e-4  # relative, for the rounding of answers to single precision


@dataclass(frozen=True, eq=False)
class Setting:
    """What all programs of one query share.

    Attributes:
        query: rows, targets, region and model.
        home: (n, d) the rows with the categories they will have.
        columns: (q,) numeric columns, the only ones that move.
        bank: components of all classes that are dense enough somewhere.
        label: (m,) class of each component.
        weight: (q,) L1 weights.
        norm: "l1" or "l2".
        margin: how far inside the target class an answer is.
    """

    query: Query
    home: Tensor
    columns: Tensor
    bank: Ellipsoids
    label: Tensor
    weight: Tensor
    norm: Literal["l1", "l2"]
    margin: float

    def pairs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return (row numbers, components) of all programs, sorted by component."""
        match = self.query.target[rows][None, :] == self.label[:, None]
        which, local = match.nonzero(as_tuple=True)
        return rows[local], which

    def numbers(self, x: Tensor) -> Tensor:
        """Return the moving columns (n, q) in float64."""
        return x[:, self.columns].to(torch.float64)

    def rows_with(self, numbers: Tensor, rows: Tensor) -> Tensor:
        """Return full rows (a, d) with the given numbers (a, q)."""
        full = self.home[rows].clone()
        full[:, self.columns] = numbers.to(full.dtype)
        return full

    def theta(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the cost (a,) of full rows."""
        delta = self.numbers(x) - self.numbers(self.query.x[rows])
        if self.norm == "l1":
            return (self.weight * delta.abs()).sum(-1)
        return delta.square().sum(-1) / 2

    def inside(self, x: Tensor, which: Tensor, slack: float = _SLACK) -> Tensor:
        """Tell whether full rows (a, d) lie in their ellipsoids, but for a relative slack."""
        distance = self.bank.own_mahalanobis(self.numbers(x), which)
        return distance <= self.bank.radius[which] * (1 + slack) + 1e-9


def rivals(target: Tensor, classes: int) -> Tensor:
    """Return (n, K - 1) the other classes.

    >>> rivals(torch.tensor([0, 2]), 3)
    tensor([[1, 2],
            [0, 1]])
    """
    other = torch.arange(classes - 1, device=target.device)
    return other + (other >= target[:, None]).long()


def make_programs(
    setting: Setting, rows: Tensor, which: Tensor, normals: Tensor, offsets: Tensor
) -> Programs:
    """Join class half-spaces `normal . numbers <= offset`, box and relations between numbers."""
    region = setting.query.region
    relations = setting.numbers(region.layout.relations)
    if len(relations):
        present = setting.numbers(setting.query.x[rows]) @ relations.T
        bound = torch.maximum(region.layout.bounds.to(torch.float64), present)
        normals = torch.cat([normals, relations.expand(len(rows), -1, -1)], 1)
        offsets = torch.cat([offsets, bound], 1)
    return Programs(
        origin=setting.numbers(setting.query.x[rows]),
        weight=setting.weight,
        normals=normals,
        offsets=offsets,
        lower=setting.numbers(region.lower[rows]),
        upper=setting.numbers(region.upper[rows]),
        which=which,
        ellipsoids=setting.bank,
        norm=setting.norm,
    )


def linear_programs(
    setting: Setting, rows: Tensor, which: Tensor, w: Tensor, b: Tensor
) -> Programs:
    """Write `score_t >= score_i + margin` as half-spaces of the numbers, categories given."""
    query = setting.query
    w, b = (t.detach().to(query.x.device, torch.float64) for t in (w, b))
    target = query.target[rows]
    other = rivals(target, len(b))
    slope = w[other] - w[target][:, None, :]  # (p, K - 1, d)
    labels = setting.home[rows].to(torch.float64).clone()
    labels[:, setting.columns] = 0.0
    fixed = torch.einsum("phd,pd->ph", slope, labels) + b[other] - b[target][:, None]
    return make_programs(
        setting, rows, which, slope[..., setting.columns], -fixed - setting.margin
    )


@torch.no_grad()
def finish(
    setting: Setting, numbers: Tensor, rows: Tensor, which: Tensor
) -> tuple[Tensor, Tensor]:
    """Turn solutions (p, q) into answers (p, d) and costs (p,), infinite where there is none.

    A solution that rounding to single precision, whole numbers or relations throws out is pulled
    towards the centre of its component. If no point on the way is both valid and dense enough,
    the first valid one is taken: a grid need not meet a small ellipsoid.
    """
    query = setting.query
    centre = setting.bank.mean[which]
    answer = torch.full_like(query.x[rows], torch.nan)
    second = answer.clone()
    todo = torch.arange(len(rows), device=rows.device)
    for pull in range(_PULLS + 1):
        share = pull / _PULLS
        point = numbers[todo] + share * (centre[todo] - numbers[todo])
        seen, ok = query.accept(setting.rows_with(point, rows[todo]), rows[todo])
        dense = ok & setting.inside(seen, which[todo])
        answer[todo[dense]] = seen[dense]
        first = ok & second[todo, 0].isnan()
        second[todo[first]] = seen[first]
        todo = todo[~dense]
        if not len(todo) or query.budget.expired:
            break
    answer = torch.where(answer.isnan(), second, answer)
    cost = setting.theta(answer, rows)
    return answer, torch.nan_to_num(cost, nan=torch.inf)


def best_per_row(answer: Tensor, cost: Tensor, rows: Tensor, n: int) -> Tensor:
    """Return (n, d) the cheapest answer of each row, NaN where there is none."""
    least = torch.full((n,), torch.inf, dtype=cost.dtype, device=cost.device)
    least = least.scatter_reduce(0, rows, cost, "amin")
    wins = ((cost == least[rows]) & cost.isfinite()).nonzero()[:, 0]
    first = torch.full((n,), len(cost), device=cost.device)
    first = first.scatter_reduce(0, rows[wins], wins, "amin")
    out = torch.full((n, answer.shape[1]), torch.nan, dtype=answer.dtype, device=answer.device)
    has = first < len(cost)
    out[has] = answer[first[has]]
    return out


_NEAR = 32


def modal_rows(query: Query, shares: dict[int, Tensor]) -> Tensor:
    """Return the rows (n, d) with the most frequent reachable categories of their target class.

    Args:
        query: the rows.
        shares: (d,) mean training row of each class, which holds the shares of its categories.
    """
    rows = query.x.clone()
    for label, share in shares.items():
        here = query.target == label
        rows[here] = torch.where(query.region.layout.numeric, query.x[here], share.to(query.x))
    out: Tensor = query.region.snap(rows)
    return out


@torch.no_grad()
def case_rows(setting: Setting, rows: Tensor, core: dict[int, Tensor]) -> Tensor:
    """Return the rows (n, d) with the categories of a near dense row of their target class.

    Of the nearest dense training rows, moved into the region of the row, the first that is valid
    and still dense gives its categories, so that there is a feasible point with them. Rows for
    which there is none keep their own.
    """
    query = setting.query
    out, numeric = query.x.clone(), query.region.layout.numeric
    target = query.target[rows]
    for label in sorted(set(target.tolist())):
        here, pool = rows[target == label], core.get(label)
        own = (setting.label == label).nonzero()[:, 0]
        if pool is None or not len(pool) or not len(own):
            continue
        near = torch.cdist(query.x[here], pool, p=1)
        near = near.topk(min(_NEAR, len(pool)), dim=1, largest=False).indices
        source = here.repeat_interleave(near.shape[1])
        seen, ok = query.accept(pool[near].flatten(0, 1), source)
        ratio = setting.bank.mahalanobis(setting.numbers(seen))[:, own] / setting.bank.radius[own]
        ok = (ok & (ratio.amin(1) <= 1)).reshape(near.shape)
        first = ok.to(torch.int8).argmax(1)
        case = seen.reshape(*near.shape, -1)[torch.arange(len(here), device=here.device), first]
        use = ok.any(1)[:, None] & ~numeric
        out[here] = torch.where(use, case, out[here])
    return out
