"""Few changes at a time: single moves of every row, the best of them combined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cel.search.budget import Budget

__all__ = ["BeamFound", "SingleMoves", "few_changes"]

CELLS = 2**22  # entries of the candidates that are looked at together


@dataclass(frozen=True, eq=False)
class SingleMoves:
    """Single changes that a row can make.

    Attributes:
        value: (m, d) the new values.
        columns: (m, d) bool, the columns that a move sets.
        unit: (m,) what it changes; a row makes one move of each unit at most.
    """

    value: Tensor
    columns: Tensor
    unit: Tensor

    def __len__(self) -> int:
        return len(self.unit)

    @property
    def units(self) -> int:
        """Number of different units."""
        return int(self.unit.max()) + 1 if len(self.unit) else 0


@dataclass(frozen=True, eq=False)
class BeamFound:
    """What a search found.

    Attributes:
        x: (a, d) accepted points.
        row: (a,) their rows.
        best: (n, d) the point of the largest margin of each row, accepted or not.
        margin: (n,) that margin.
    """

    x: Tensor
    row: Tensor
    best: Tensor
    margin: Tensor


def few_changes(
    x: Tensor,
    moves: SingleMoves,
    judge: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    cost: Callable[[Tensor, Tensor], Tensor],
    *,
    depth: int,
    width: int,
    keep: int,
    edge: float,
    budget: Budget,
    onwards: bool = False,
) -> BeamFound:
    """Try every single move of every row, then every second one of the best, and so on.

    Args:
        x: (n, d) rows.
        moves: what a row can do.
        judge: points (a, d) and rows (a,) to decodable points (a, d) and their margins (a,).
        cost: points and rows to costs (a,).
        depth: changes of one row.
        width: states of a row that are gone on with: half of them the nearest to the goal, half
            those that got there most cheaply.
        keep: accepted points per row and step, of different units.
        edge: margin from which on a point is accepted.
        budget: the search ends with it.
        onwards: whether rows that were accepted go on, for more answers.
    """
    n, d = x.shape
    rows = torch.arange(n, device=x.device)
    best, top = x.clone(), judge(x, rows)[1].to(x)
    found: list[tuple[Tensor, Tensor]] = []
    states, used = x[:, None], torch.zeros(n, 1, moves.units, dtype=torch.bool, device=x.device)
    for _ in range(min(depth, moves.units)):
        size = max(1, CELLS // max(states.shape[1] * len(moves) * d, 1))
        parts = []
        for at in range(0, len(rows), size):
            if budget.expired:
                return _gathered(found, best, top, x)
            some = slice(at, at + size)
            step = _Step.of(rows[some], states[some], used[some], moves, judge, cost)
            found.append(step.accepted(keep, edge))
            better = step.top() > top[step.rows]
            best[step.rows[better]] = step.best()[better]
            top[step.rows] = torch.maximum(top[step.rows], step.top())
            parts.append(step.onwards(width, edge, go_on=onwards))
        rows, states, used = (torch.cat(list(p)) for p in zip(*parts, strict=True))
        if not len(rows):
            break
    return _gathered(found, best, top, x)


def _gathered(
    found: list[tuple[Tensor, Tensor]], best: Tensor, top: Tensor, like: Tensor
) -> BeamFound:
    if not found:
        none = torch.zeros(0, dtype=torch.long, device=like.device)
        return BeamFound(like[:0], none, best, top)
    points, rows = zip(*found, strict=True)
    return BeamFound(torch.cat(points), torch.cat(rows), best, top)


@dataclass(frozen=True, eq=False)
class _Step:
    """All moves of some states: r rows, w states each, m moves."""

    rows: Tensor  # (r,)
    used: Tensor  # (r, w, u)
    moves: SingleMoves
    points: Tensor  # (r, w m, d)
    margin: Tensor  # (r, w m), -inf for moves that a state does not have
    price: Tensor  # (r, w m)

    @classmethod
    def of(
        cls,
        rows: Tensor,
        states: Tensor,
        used: Tensor,
        moves: SingleMoves,
        judge: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
        cost: Callable[[Tensor, Tensor], Tensor],
    ) -> _Step:
        r, _, d = states.shape
        moved = torch.where(moves.columns, moves.value, states[:, :, None])  # (r, w, m, d)
        open_ = (~used[:, :, moves.unit] & ~states.isnan().any(-1, keepdim=True)).reshape(r, -1)
        open_ &= (moved != states[:, :, None]).any(-1).reshape(r, -1)
        points = moved.reshape(r, -1, d)
        at, which = open_.nonzero(as_tuple=True)
        margin = torch.full(open_.shape, -torch.inf, dtype=states.dtype, device=states.device)
        price = torch.full_like(margin, torch.inf)
        if len(at):
            seen, value = judge(points[at, which], rows[at])
            points[at, which], margin[at, which] = seen, value.to(margin)
            price[at, which] = cost(seen, rows[at]).to(margin)
        margin = torch.where(price > 0, margin, torch.full_like(margin, -torch.inf))
        return cls(rows, used, moves, points, margin, price)

    def top(self) -> Tensor:
        """(r,) the largest margins."""
        return self.margin.amax(1)

    def best(self) -> Tensor:
        """(r, d) the points of the largest margins."""
        return self.points[torch.arange(len(self.rows)), self.margin.argmax(1)]

    def accepted(self, keep: int, edge: float) -> tuple[Tensor, Tensor]:
        """Return the cheapest accepted points (a, d), one per state and unit, and their rows."""
        price = torch.where(self.margin >= edge, self.price, torch.inf)
        r, w, u = self.used.shape
        price = price.reshape(r, w, -1)
        unit = self.moves.unit.expand(r, w, -1)
        least = torch.full((r, w, u), torch.inf, dtype=price.dtype, device=price.device)
        least.scatter_reduce_(2, unit, price, "amin")
        first = price <= least.gather(2, unit)
        price = torch.where(first, price, torch.inf).reshape(r, -1)
        values, which = price.topk(min(keep, price.shape[1]), dim=1, largest=False)
        at, number = values.isfinite().nonzero(as_tuple=True)
        return self.points[at, which[at, number]], self.rows[at]

    def onwards(self, width: int, edge: float, *, go_on: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows (s,), states (s, width, d) and used units (s, width, u) of the next step."""
        done = (self.margin >= edge).any(1)
        here = (torch.ones_like(done) if go_on else ~done).nonzero()[:, 0]
        margin = torch.where(self.margin >= edge, -torch.inf, self.margin)[here]
        low = torch.where(margin.isfinite(), margin, torch.inf).amin(1, keepdim=True)
        rate = torch.where(
            margin.isfinite(), (margin - low) / self.price[here].clamp(min=1e-6), -torch.inf
        )
        half = min((width + 1) // 2, margin.shape[1])
        near = margin.topk(half, dim=1).indices
        rate = rate.scatter(1, near, -torch.inf)
        cheap = rate.topk(min(width - half, margin.shape[1]), dim=1).indices
        which = torch.cat([near, cheap], 1)
        states = self.points[here[:, None], which].clone()
        states[~margin.gather(1, which).isfinite()] = torch.nan
        count = len(self.moves)
        used = self.used[here[:, None], which // max(count, 1)].clone()
        unit = self.moves.unit[which % max(count, 1)]
        used.scatter_(2, unit[..., None], True)
        some = (~states.isnan().any(-1)).any(1)
        return self.rows[here[some]], states[some], used[some]
