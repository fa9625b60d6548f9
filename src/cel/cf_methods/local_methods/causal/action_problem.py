"""Rows, what they may do, what follows from it, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from cel.cf_methods.local_methods.causal.category_plans import switched_features
from cel.cf_methods.local_methods.causal.doubt import Doubt
from cel.cf_methods.query import Query
from cel.space.causal import StructuralModel
from cel.space.layout import by_feature
from cel.space.region import Region

__all__ = ["TIE", "ActionProblem", "Actions"]

TIE = 1e-5  # of a cost: actions that are cheaper by less are not tried


@dataclass(frozen=True, kw_only=True, eq=False)
class Actions:
    """The cheapest actions of n rows.

    Attributes:
        x: (n, d) resulting rows, NaN where there is none.
        action: (n, d) what was added to the features acted on.
        ok: (n,) whether there is one.
        cost: (n,) infinite where there is none.
        bound: (n,) what no action of the sets undercuts; NaN where unknown.
        empty: (n,) bool, whether it is proved that no action of the sets suffices.
    """

    x: Tensor
    action: Tensor
    ok: Tensor
    cost: Tensor
    bound: Tensor
    empty: Tensor

    @classmethod
    def nothing(cls, x: Tensor) -> Actions:
        """Return no action for the rows of `x` (n, d)."""
        none = torch.zeros_like(x[:, 0], dtype=torch.bool)
        far = torch.full_like(x[:, 0], torch.inf)
        return cls(
            x=torch.full_like(x, torch.nan),
            action=torch.zeros_like(x),
            ok=none,
            cost=far,
            bound=torch.full_like(far, torch.nan),
            empty=none.clone(),
        )

    def with_plan(self, other: Actions, price: Tensor, asked: Tensor) -> Actions:
        """Return the cheaper action of each row, and what is known about both plans together.

        Args:
            other: actions of another plan, whose costs include its price.
            price: (n,) what the plan costs at the least, for rows that it was not asked for.
            asked: (n,) bool, rows that it was asked for.
        """
        better = other.ok & (other.cost < self.cost * (1 - TIE))
        take = better[:, None]
        low = torch.where(asked, _floor(other), price)
        bound = torch.minimum(_floor(self), low)  # not a number where nothing is known
        return Actions(
            x=torch.where(take, other.x, self.x),
            action=torch.where(take, other.action, self.action),
            ok=self.ok | other.ok,
            cost=torch.where(better, other.cost, self.cost),
            bound=torch.where(bound.isinf(), torch.nan, bound),
            empty=bound.isinf(),
        )


def _floor(actions: Actions) -> Tensor:
    return torch.where(actions.empty, torch.inf, actions.bound)


@dataclass(frozen=True, eq=False)
class ActionProblem:
    """Rows, what they may do, and what follows from it.

    Attributes:
        query: its region is where resulting rows may lie.
        region: what the rows themselves may do.
        scm: what follows.
        scale: (d,) what one unit of cost buys.
        doubt: what is open about the equations, or None.
        switch: (n, d) what is added to one-hot columns, or None.
        price: (n,) what that costs, or None.
    """

    query: Query
    region: Region
    scm: StructuralModel
    scale: Tensor
    doubt: Doubt | None = None
    switch: Tensor | None = None
    price: Tensor | None = None

    def switched(self, switch: Tensor, price: Tensor) -> ActionProblem:
        """Return the problem of rows that act on categories, too: (n, d) at prices (n,)."""
        return replace(self, switch=switch, price=price)

    def acts(self, action: Tensor, acted: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions (a, d) on numbers with those on categories, and their sets (a, p)."""
        if self.switch is None:
            return action, acted
        switch = self.switch[rows].to(action)
        return action + switch, acted | switched_features(
            switch, self.region.layout.owner, acted.shape[1]
        )

    def base(self, rows: Tensor, acted: Tensor) -> Tensor:
        """Return rows (a, d) before anything is done about numbers: categories are switched."""
        x = self.query.x[rows]
        if self.switch is None:
            return x
        x = x.double()
        return self.scm.follow(x, *self.acts(torch.zeros_like(x), acted, rows))

    @cached_property
    def can_act(self) -> Tensor:
        """(n, p) bool, numbers that each row may change."""
        lay = self.region.layout
        free = lay.numeric & ~self.region.fixed
        return by_feature(free, lay.owner, len(self.region.space)) > 0

    @cached_property
    def follows(self) -> Tensor:
        """(d,) bool, columns that follow from others."""
        out = torch.zeros(self.region.space.width, dtype=torch.bool, device=self.query.x.device)
        for name in self.scm.mechanisms:
            out[list(self.region.space[name].columns)] = True
        return out

    def box(self, rows: Tensor, acted: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smallest and largest actions (a, d) of sets (a, p)."""
        may = (acted & self.can_act[rows])[:, self.region.layout.owner]
        x = self.query.x[rows]
        low = torch.where(may, self.region.lower[rows] - x, torch.zeros_like(x))
        high = torch.where(may, self.region.upper[rows] - x, torch.zeros_like(x))
        return low, high

    def rules(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return relations (r, d) and what they may reach (a, r); a broken one stays as it is."""
        lay, x = self.region.layout, self.query.x[rows]
        return lay.relations, torch.maximum(lay.bounds.expand(len(rows), -1), x @ lay.relations.T)

    def cost(self, action: Tensor, rows: Tensor) -> Tensor:
        """Return the cost (a,) of actions (a, d) on numbers, and of the switches of the rows."""
        cost: Tensor = (action.abs() / self.scale).sum(1)
        return cost if self.price is None else cost + self.price[rows]

    def settle(self, action: Tensor, acted: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Put actions (a, d) on their grids and let all follow; return them, rows and verdicts."""
        x, lay = self.query.x[rows], self.region.layout
        on = acted[:, lay.owner] & self.can_act[rows][:, lay.owner]
        asked = torch.where(on, x + action, x)
        if self.switch is not None:
            asked = asked + self.switch[rows]
        done: Tensor = self.region.select(rows).snap(asked)
        action = torch.where(on, done - x, torch.zeros_like(x))
        whole, sets = self.acts(action, acted, rows)
        result = self.scm.follow(x, whole, sets)
        result = torch.where(on, done, result)  # x + (done - x) may differ by rounding
        seen, ok = self.query.accept(result, rows)
        if self.doubt is not None:
            with torch.no_grad():
                ok = ok & (self.lead(action, acted, rows) >= 0)
        room = torch.where(on, torch.zeros_like(lay.step), lay.step / 2) + lay.tolerance
        ok = ok & ((seen - result).abs() <= room).all(1) & (seen != x).any(1)
        return action, seen, ok

    def lead(self, action: Tensor, acted: Tensor, rows: Tensor) -> Tensor:
        """Return (a,) how far the wanted class leads for most of what the equations may be."""
        assert self.doubt is not None
        whole, sets = self.acts(action, acted, rows)
        query = self.query
        return self.doubt.lead(query.model, query.x[rows], whole, sets, query.target[rows])
