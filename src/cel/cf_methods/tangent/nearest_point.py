"""The problem that Wachter, CEM and CEGP share: the cheapest point on the wanted side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.cf_methods.tangent.costs import SeparableCost
from cel.cf_methods.tangent.margins import AIM
from cel.cf_methods.tangent.score_slopes import ClosedSlope, ScoreLayers
from cel.objectives import ScoreLoss
from cel.protocols import Task
from cel.search import (
    Fista,
    Found,
    LastOf,
    bisect_to_boundary,
    gradient_search,
    revert_features,
    row_gradient,
    search_weight,
)
from cel.search.gradient import Accept, RowFunction, RowSlope, SnapTest
from cel.search.steppers import Stepper
from cel.solvers import linearised_search, proved_empty, row_jacobian
from cel.solvers.cuts import Cuts
from cel.solvers.least_change import RowOutputs
from cel.solvers.linearised import Demands, Linearise, Solve
from cel.space.projection import Projection

__all__ = ["NearestPoint"]


@dataclass(frozen=True, kw_only=True, eq=False)
class NearestPoint:
    """Minimise `cost` subject to `margins >= aim` inside the regions of a query.

    Attributes:
        query: rows, targets and regions.
        cost: what a point costs.
        margins: (points (a, d), row numbers) -> (a, c), differentiable, all positive on the wanted
            side.
        aim: the margins that searches head for.
        also: further differentiable surpluses that must not be negative.
        accept: the test on the snapped point.
    """

    query: Query
    cost: SeparableCost
    margins: RowOutputs
    accept: Accept
    aim: float = AIM
    also: tuple[RowFunction, ...] = ()

    def on(self, rows: Tensor) -> NearestPoint:
        """Return the problem of some rows; row numbers may repeat."""
        return replace(
            self,
            query=self.query.select(rows),
            cost=self.cost.select(rows),
            margins=lambda x, r: self.margins(x, rows[r]),
            accept=_renumbered(self.accept, rows),
            also=tuple(_renumber(f, rows) for f in self.also),
        )

    @property
    def has_categories(self) -> bool:
        """Whether any row may change a category."""
        region = self.query.region
        return bool((~region.layout.numeric & ~region.fixed).any())

    @property
    def is_discrete(self) -> bool:
        """Whether points are rounded, to a grid or to a category."""
        return self.has_categories or bool((self.query.region.layout.step > 0).any())

    @property
    def has_closed_form(self) -> bool:
        """Whether the margins are linear and every column that may move is continuous."""
        query, lay = self.query, self.query.region.layout
        several = query.model.task is Task.REGRESSION and query.model.n_outputs > 1
        if query.model.linear() is None or several:
            return False
        if self.cost.extra is not None or self.also:
            return False
        discrete = ~lay.numeric | (lay.step > 0)
        stuck = query.region.fixed | ~discrete
        return bool(stuck.all()) and not query.region.space.constraints

    def margin(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the smallest margin, shape (a,)."""
        return self.margins(x, rows).amin(1)

    def surplus(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the smallest margin beyond the aim, shape (a,)."""
        return self.margin(x, rows) - self.aim

    def missing(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return by how much points fall short of all demands, shape (a,)."""
        parts = [f(x, rows) for f in (self.surplus, *self.also)]
        return torch.stack(parts).neg().clamp(min=0).sum(0)

    def closed_form(self) -> tuple[Found, Tensor]:
        """Solve a problem that `has_closed_form`.

        Returns:
            the answers, and (n,) bool: rows that are proved to have none.
        """
        rows, region, center = self.query.rows(), self.query.region, self.cost.center
        margins, slope = row_jacobian(self.margins, center, rows)
        box = region.lower - center, region.upper - center
        best = self.cost.nearest(slope, self.aim - margins, *box, rows)
        found = Found.nothing(center)
        found.offer(center + best.delta, rows, self.accept, self.cost.value)
        proof = best.dual if margins.shape[1] > 1 else torch.ones_like(margins)
        return found, ~best.feasible & proved_empty(slope, -margins, *box, proof)

    def tangent(self, start: Tensor, *, steps: int, radius: float = 1.0) -> Found:
        """Solve for the tangent of the model again and again; categories stay as in `start`."""
        region, lay = self.query.region, self.query.region.layout
        linearise: Linearise = self._linearise
        solve: Solve = self.cost.nearest
        if self.also and not self.is_discrete:  # rounding would spoil what they bring
            cuts = Cuts(linearise, solve, self.cost.center, last=len(self.also))
            linearise, solve = cuts.linearise, cuts.solve
        demands = Demands(
            linearise=linearise,
            solve=solve,
            accept=self.accept,
            cost=self.cost.value,
            center=self.cost.center,
            lower=torch.where(lay.numeric, region.lower, start),
            upper=torch.where(lay.numeric, region.upper, start),
            width=self._width,
            grid=lay.step,
            aside=len(self.also),
            lean=self.cost.lean,
        )
        return linearised_search(
            demands, start, steps=steps, radius=radius, budget=self.query.budget
        )

    @property
    def _width(self) -> Tensor:
        """(d,) ranges of the columns, 1 where there is none."""
        lay = self.query.region.layout
        width = (lay.upper - lay.lower).nan_to_num(posinf=1.0)
        return torch.where(width > 0, width, torch.ones_like(width))

    def _linearise(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        margins, slopes = row_jacobian(self.margins, x, rows)
        parts = [row_gradient(f, x, rows) for f in self.also]
        surplus = torch.cat([margins - self.aim, *(v[:, None] for v, _ in parts)], 1)
        return surplus, torch.cat([slopes, *(g[:, None] for _, g in parts)], 1)

    def descend(
        self,
        loss: RowFunction,
        *,
        slope: ScoreLoss,
        stepper: Stepper,
        weight: float,
        rounds: int,
        steps: int,
        rank: RowFunction | None = None,
        check_every: int = 5,
        stop_at_first: bool = False,
        rest: bool = False,
    ) -> Found:
        """Descend `weight * loss + cost` from the rows, searching the weight of each row.

        Accepted points are compared by `rank`, by default the cost; with `stop_at_first` a row
        ends at its first accepted point, with `rest` once it has been accepted and come to rest.
        `slope` is the same loss as a function of the scores: where the layers of the model are
        known, gradients need no autograd.
        """
        budget, start, layers = self.query.budget, self.query.x, self._layers

        def closed(weights: Tensor) -> RowSlope | None:
            if layers is None:
                return None
            query = self.query
            return ClosedSlope(query.model, layers, slope, query.target, self.cost, weights)

        def solve(weights: Tensor) -> Found:
            return gradient_search(
                lambda x, rows: weights[rows] * loss(x, rows) + self.cost.smooth(x, rows),
                start,
                stepper=stepper,
                project=self.project,
                closed=closed(weights),
                width=self._width if rest else None,
                accept=self.accept,
                cost=rank or self.cost.value,
                steps=steps,
                check_every=check_every,
                patience=max(20, steps // 2),
                give_up=max(30, steps // 4),
                stop_at_first=stop_at_first,
                budget=budget,
            )

        first = torch.full_like(start[:, 0], weight)
        return search_weight(solve, first, rounds=rounds, budget=budget)

    def fista(self, lr: float, steps: int, *, by_step: bool = True) -> Fista:
        """Return FISTA that shrinks by the L1 term and stays in the regions.

        Args:
            lr: first step size.
            steps: after which it has decayed.
            by_step: shrink in proportion to the step, as the proximal map does.
        """

        def shrink(x: Tensor, step: Tensor, rows: Tensor) -> Tensor:
            amount = step if by_step else torch.ones_like(step)
            return self.project(self.cost.prox(x, amount, rows), rows)

        return Fista(lr, steps, prox=shrink)

    def project(self, x: Tensor, rows: Tensor) -> Tensor:
        """Project points (a, d) of some rows onto their boxes and simplices, many times over."""
        return self._projections(rows)(x)

    @cached_property
    def _projections(self) -> LastOf[Projection]:
        return LastOf(lambda rows: Projection(self.query.region.select(rows)))

    @cached_property
    def _layers(self) -> ScoreLayers | None:
        if self.cost.extra is not None:
            return None
        return ScoreLayers.of(self.query.model, self.query.x)

    def polish(self, found: Found, steps: int) -> Found:
        """Improve answers by `tangent`, each with the categories it has."""
        rows = found.ok.nonzero()[:, 0]
        if len(rows):
            found.put_better(rows, self.on(rows).tangent(found.x[rows], steps=steps, radius=0.2))
        return found

    def finish(self, found: Found, *, whole_features: bool = True) -> Found:
        """Give back what is not needed: a share of the change, steps of a grid, features."""
        rows, home, lay = found.ok.nonzero()[:, 0], self.cost.center, self.query.region.layout

        def slide(x: Tensor) -> Tensor:
            return bisect_to_boundary(home, x, found.ok, self.accept, slide=lay.numeric, steps=12)

        def step_back(x: Tensor) -> Tensor:
            back = x - (x - home).sign() * torch.minimum((x - home).abs(), lay.step)
            return revert_features(x, back, found.ok, self.accept, lay.owner)

        def revert(x: Tensor) -> Tensor:
            return revert_features(x, home, found.ok, self.accept, lay.owner)

        grid = [step_back] if bool((lay.step > 0).any()) else []
        stages = [slide, *grid, revert, slide]
        for stage in stages if whole_features else [slide]:
            if not len(rows) or self.query.budget.expired:
                break
            found.offer(stage(found.x)[rows], rows, self.accept, self.cost.value)
        return found

    def restart(self, found: Found, *starts: Callable[[Tensor], Tensor], steps: int) -> Found:
        """Give rows without an answer another try from other points.

        Args:
            found: answers so far; changed in place.
            starts: row numbers (a,) -> points (a, k, d); later ones for rows none of whose points
                was accepted before.
            steps: tangents from the best of the points, moved to the boundary.
        """
        todo = (~found.ok).nonzero()[:, 0]
        place = Found.nothing(self.query.x)
        for points in starts:
            left = todo[~place.ok[todo]]
            if not len(left) or self.query.budget.expired:
                break
            place.put_better(left, self._best_of(left, points(left)))
        rows = place.ok.nonzero()[:, 0]
        if not len(rows):
            return found
        part, ok = self.on(rows), place.ok[rows]
        x = bisect_to_boundary(
            part.query.x, place.x[rows], ok, part.accept, slide=part.query.region.layout.numeric
        )
        answer = part.tangent(x, steps=steps, radius=0.2)
        answer.offer(x, part.query.rows(), part.accept, part.cost.value)
        found.put_better(rows, answer)
        return found

    def _best_of(self, rows: Tensor, points: Tensor) -> Found:
        """Return the cheapest accepted one of some points (a, k, d) of each row."""
        count = points.shape[1]
        if not count:
            return Found.nothing(self.query.x[rows])
        rest = self.on(rows.repeat_interleave(count))
        tried = Found.nothing(rest.query.x)
        tried.offer(points.flatten(0, 1), rest.query.rows(), rest.accept, rest.cost.value)
        best = tried.cost.reshape(-1, count).argmin(1)
        return tried.select(best + count * torch.arange(len(rows), device=rows.device))


def _renumbered(accept: Accept, rows: Tensor) -> Accept:
    if not isinstance(accept, SnapTest):
        return lambda x, r: accept(x, rows[r])
    snap, judge = accept.snap, accept.judge
    return SnapTest(lambda x, r: snap(x, rows[r]), lambda x, r: judge(x, rows[r]))


def _renumber(f: RowFunction, rows: Tensor) -> RowFunction:
    return lambda x, r: f(x, rows[r])
