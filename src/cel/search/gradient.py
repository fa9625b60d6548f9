"""Batched descent: every row has its own state, its own incumbent and its own end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from cel.search.budget import Budget
from cel.search.steppers import State, Stepper

__all__ = [
    "Accept",
    "Found",
    "Hopeful",
    "Race",
    "RowFunction",
    "RowMap",
    "RowSlope",
    "SnapTest",
    "gradient_search",
    "row_gradient",
]

REST, TESTS = 1e-4, 3  # how little a row moves, in how many tests, when it has come to rest

RowFunction = Callable[[Tensor, Tensor], Tensor]
"""(points (a, d), row numbers (a,)) -> (a,)."""
RowMap = Callable[[Tensor, Tensor], Tensor]
"""(points (a, d), row numbers (a,)) -> points (a, d)."""
RowSlope = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(points (a, d), row numbers (a,)) -> (values (a,), gradients (a, d))."""
Accept = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(points, row numbers) -> (the points as the user will see them, whether they count)."""
Hopeful = Callable[[int, Tensor], Tensor]
"""(steps made, row numbers (a,)) -> (a,) bool, whether rows may still arrive."""


@dataclass(frozen=True)
class SnapTest:
    """An `Accept` in two steps, so that points which are too dear need not be judged.

    Attributes:
        snap: points -> the points as the user will see them.
        judge: such points -> whether they count, bool.
    """

    snap: RowMap
    judge: RowFunction

    def __call__(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Snap and judge all points (a, d)."""
        seen = self.snap(x, rows)
        return seen, self.judge(seen, rows)


@dataclass(frozen=True, kw_only=True)
class Found:
    """The cheapest accepted point of each row.

    Attributes:
        x: (n, d), NaN where nothing was accepted.
        ok: (n,) bool.
        cost: (n,), infinite where nothing was accepted.
    """

    x: Tensor
    ok: Tensor
    cost: Tensor

    @classmethod
    def nothing(cls, like: Tensor) -> Found:
        """Return an empty answer for the rows of `like` (n, d)."""
        inf = torch.full_like(like[:, 0], torch.inf)
        none = torch.zeros(len(like), dtype=torch.bool, device=like.device)
        return cls(x=torch.full_like(like, torch.nan), ok=none, cost=inf)

    def select(self, rows: Tensor) -> Found:
        """Return the answers of some rows."""
        return Found(x=self.x[rows], ok=self.ok[rows], cost=self.cost[rows])

    def better(self, other: Found) -> Found:
        """Return, row by row, the cheaper of two answers; ties keep this one."""
        use = other.cost < self.cost
        return Found(
            x=torch.where(use[:, None], other.x, self.x),
            ok=self.ok | other.ok,
            cost=torch.where(use, other.cost, self.cost),
        )

    def put_better(self, rows: Tensor, other: Found) -> None:
        """Take over, in place, the answers of a search of these rows where they are cheaper."""
        use = other.cost < self.cost[rows]
        chosen = rows[use]
        self.x[chosen], self.cost[chosen], self.ok[chosen] = other.x[use], other.cost[use], True

    def offer(self, x: Tensor, rows: Tensor, accept: Accept, cost: RowFunction) -> Tensor:
        """Keep, in place, those of the points (a, d) that are accepted and cheaper than before.

        Returns:
            (a,) bool, rows whose cost, of either sign, fell by more than a relative 1e-5.
        """
        if not len(rows):
            return torch.zeros(0, dtype=torch.bool, device=x.device)
        old = self.cost[rows]
        with torch.no_grad():
            if isinstance(accept, SnapTest):
                seen = accept.snap(x, rows)
                price = cost(seen, rows)
                better = _judged(accept.judge, seen, rows, price < old)
            else:
                seen, ok = accept(x, rows)
                price = torch.where(ok, cost(seen, rows), torch.full_like(seen[:, 0], torch.inf))
                better = price < old
        chosen = rows[better]
        if not len(chosen):
            return better
        self.x[chosen], self.cost[chosen], self.ok[chosen] = seen[better], price[better], True
        return better & ~(price > old - 1e-5 * old.abs())


def _judged(judge: RowFunction, seen: Tensor, rows: Tensor, worth: Tensor) -> Tensor:
    """Return (a,) bool: points that are worth a look and count."""
    at = worth.nonzero()[:, 0]
    if len(at) == len(rows):
        return judge(seen, rows)
    if len(at):
        worth = worth.index_put((at,), judge(seen[at], rows[at]))
    return worth


def row_gradient(loss: RowFunction, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return (losses (a,), gradients (a, d)); rows are summed, so their gradients never mix.

    A loss that does not depend on `x` (a model that is flat or cuts the graph) has gradient 0.
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        value = loss(x, rows)
        if not value.requires_grad:
            return value.detach(), torch.zeros_like(x)
        (grad,) = torch.autograd.grad(value.sum(), x, materialize_grads=True)
    return value.detach(), torch.nan_to_num(grad, nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True, kw_only=True)
class Race:
    """Starts that compete: after some steps only the best of each group go on.

    Attributes:
        starts: consecutive rows of one group.
        keep: how many of them go on, those of lowest loss.
        after: steps before the choice.
    """

    starts: int
    keep: int
    after: int


@dataclass
class _Live:
    """The rows still in the batch; the first axis of every tensor runs over them."""

    rows: Tensor
    x: Tensor
    state: State
    live: Tensor  # bool
    stale: Tensor  # steps since the best accepted cost improved
    lowest: Tensor  # lowest loss so far
    idle: Tensor  # steps since the loss improved
    last: Tensor  # the points of the last test
    calm: Tensor  # tests in a row since which they have hardly moved
    offered: tuple[Tensor, Tensor] | None = None  # places and rows of those of the last test

    @classmethod
    def of(cls, start: Tensor, stepper: Stepper) -> _Live:
        x = start.detach().clone()
        zero = torch.zeros(len(x), device=x.device)
        rows = torch.arange(len(x), device=x.device)
        lowest = torch.full_like(x[:, 0], torch.inf)
        return cls(rows, x, stepper.start(x), zero == 0, zero, lowest, zero, x, zero)

    def note(self, loss: Tensor) -> None:
        """Count the steps since the loss fell by more than a relative 1e-3."""
        fell = loss < self.lowest - 1e-3 * self.lowest.abs().nan_to_num(posinf=0.0)
        self.idle = torch.where(fell, torch.zeros_like(self.idle), self.idle + 1)
        # Measured from the last real improvement: many small steps add up to one.
        self.lowest = torch.where(fell, loss, self.lowest)

    def offer(self, best: Found, accept: Accept, cost: RowFunction) -> Tensor:
        """Offer the iterates of rows that have not ended; return positions of improved rows.

        Ended rows may still be in the batch, but only for the sake of others: they must not gain
        from the company.
        """
        at, points = self.live.nonzero()[:, 0], self.state.point(self.x)
        if len(at) == len(self.rows):  # the same tensor: what is known of these rows is kept
            return at[best.offer(points, self.rows, accept, cost)]
        if self.offered is None or not torch.equal(self.offered[0], at):
            self.offered = at, self.rows[at]
        return at[best.offer(points[at], self.offered[1], accept, cost)]

    def rested(self, width: Tensor) -> Tensor:
        """Tell which rows have come to rest; a turning point of an oscillation is no rest."""
        points = self.state.point(self.x)
        moved = ((points - self.last) / width).abs().amax(1)
        self.last = points
        self.calm = (self.calm + 1) * (moved < REST).to(self.calm)
        return self.calm >= TESTS

    def narrow(self, race: Race, count: int) -> None:
        """End the rows that fell behind the others of their group, of `count` rows in all."""
        known = torch.full((count,), torch.inf, device=self.x.device, dtype=self.lowest.dtype)
        known[self.rows] = self.lowest
        place = known.reshape(-1, race.starts).argsort(dim=1, stable=True).argsort(dim=1)
        self.live &= place.flatten()[self.rows] < race.keep

    def compact(self) -> _Live:
        """Drop ended rows when they are a tenth; copying the others costs less than a step."""
        if int(self.live.sum()) * 10 > len(self.live) * 9:
            return self
        keep = self.live.nonzero()[:, 0]
        own = [f.name for f in fields(self) if f.name not in ("state", "offered")]
        parts = {name: getattr(self, name)[keep] for name in own}
        return _Live(**parts, state=self.state.select(keep))


def gradient_search(
    loss: RowFunction,
    start: Tensor,
    *,
    stepper: Stepper,
    project: RowMap,
    accept: Accept,
    cost: RowFunction,
    steps: int,
    check_every: int = 1,
    stop_at_first: bool = False,
    patience: int | None = None,
    give_up: int | None = None,
    late: int | None = None,
    hopeful: Hopeful | None = None,
    race: Race | None = None,
    budget: Budget | None = None,
    closed: RowSlope | None = None,
    width: Tensor | None = None,
) -> Found:
    """Descend `loss` from `start` (n, d) and keep the cheapest accepted point of each row.

    `closed` gives the loss and its gradient together where autograd is not needed.

    Acceptance is tested on the point as it will be returned (snapped, decoded), every
    `check_every` steps and after the last one. A row ends when it is accepted and `stop_at_first`
    is set, when it has been accepted and its best cost has not improved by a relative 1e-5 for
    `patience` steps, or when it has been accepted and come to rest, that is has moved by less
    than 1e-4 of `width` (d,) in each of three tests, or when it was never accepted and its loss
    has not fallen by a relative 1e-3 for `give_up` steps, after `late` steps, or when it is not
    `hopeful`. In a `race` rows end at the first test after the choice. Ended rows leave the batch
    when at least a tenth have ended.
    """
    best, now = Found.nothing(start), _Live.of(start, stepper)
    for step in range(1, steps + 1):
        value, grad = (
            row_gradient(loss, now.x, now.rows) if closed is None else closed(now.x, now.rows)
        )
        if give_up is not None or race is not None:
            now.note(value)
        moved = stepper.step(now.state, now.x, grad, now.rows)
        now.x = project(moved, now.rows).detach()
        if step % check_every and step != steps:
            continue
        now.stale = now.stale + check_every
        now.stale[now.offer(best, accept, cost)] = 0
        found = best.ok[now.rows]
        if stop_at_first:
            now.live &= ~found
        elif patience is not None:
            now.live &= ~(found & (now.stale >= patience))
        if width is not None:
            now.live &= ~(found & now.rested(width))
        if give_up is not None:
            now.live &= found | (now.idle < give_up)
        if late is not None and step >= late:
            now.live &= found
        if hopeful is not None:
            now.live &= found | hopeful(step, now.rows)
        if race is not None and step >= race.after > step - check_every:
            now.narrow(race, len(start))
        if not bool(now.live.any()) or (budget is not None and budget.expired):
            break
        now = now.compact()
    return best
