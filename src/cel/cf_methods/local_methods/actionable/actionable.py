"""Actionable recourse in linear models: the cheapest action, or the proof that there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.actionable.linear_recourse import Percentiles, Recourse
from cel.cf_methods.query import Answer, Query, TrainRows, proof_of
from cel.cf_methods.tangent.margins import AIM
from cel.cf_methods.view import ModelView
from cel.parameters import check_positive
from cel.protocols import Need, Predictor
from cel.solvers.choices import Chosen, cheapest_choices
from cel.space import FeatureSpace
from cel.space.distances import mad_scale

__all__ = ["Actionable"]

INFEASIBLE = (
    -1e-5
)  # a row is infeasible if no point has this margin: less than rounding can change
ROUNDING = 2.0**-22  # of a value: what storing it as float32 may change


class Actionable(LocalMixin, BaseCounterfactualMethod):
    """Minimise the cost of an action so that a linear model changes its mind, exactly.

    `min cost(a)  s.t.  margin(x + a) >= 1.5e-4` over all other classes, with a in the region of
    the row: grids, directions, categories, relations and implications are all part of the program.
    The answer is proved optimal, or it is proved that there is none.

    Costs:

    - "l1_mad": `sum weight |a| / MAD`, `weight` per changed category, `beta` per changed feature;
    - "log_percentile": `sum |log((1 - Q(x + a)) / (1 - Q(x)))|`, Q the share of training rows at
      or below a value, so that changes among rare high values are dear;
    - "max_percentile": `max |Q(x + a) - Q(x)|`, then the least sum of these.

    With percentile costs, numbers move to values of training rows, and a category costs 1 minus
    its share.

    Args:
        model: a linear classifier.
        cost: "l1_mad", "log_percentile" or "max_percentile".
        beta: price of changing a feature at all.
        flips: answers per row, the *flipset*: the cheapest ones, none of which changes all the
            features that a cheaper one changes. They are in `x_sets`.
        levels: most values that a number may take under percentile costs.
        nodes: parts of a program that a row may look at.
        **options: see `Options`.

    Reference: Ustun, Spangher and Liu, Actionable recourse in linear classification, FAT* 2019.
    """

    name: ClassVar[str] = "actionable"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRAIN_ROWS, Need.LINEAR_MODEL})
    reference: ClassVar[str] = "Ustun, Spangher and Liu, FAT* 2019, arXiv:1809.06514"
    proves: ClassVar[bool] = True
    version: ClassVar[int] = 2  # flipsets: no answer is lost behind the first
    _copies: ClassVar[int] = 300
    _test_params: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        model: Predictor,
        *,
        cost: Literal["l1_mad", "log_percentile", "max_percentile"] = "l1_mad",
        beta: float = 0.0,
        flips: int = 1,
        levels: int = 100,
        nodes: int = 20_000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.cost, self.beta, self.flips = cost, beta, flips
        self.levels, self.nodes = levels, nodes

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "flips", "levels", "nodes")
        check_positive(self, "beta", zero=True)

    def _fit(self, train: TrainRows) -> None:
        x = train.x.cpu().numpy()
        self.scale_ = mad_scale(x, self.space_)
        self.ranks_ = None if self.cost == "l1_mad" else Percentiles(x, self.levels)

    @torch.no_grad()
    def _explain(self, query: Query) -> Answer:
        recourse = self._recourse(query, AIM)
        chosen, bound = self._solve(query, recourse)
        sets, ok = self._points(query, recourse, chosen)
        cost = torch.as_tensor(chosen.cost[:, 0])
        if self.cost == "max_percentile":
            cost = torch.as_tensor(_dearest(recourse, chosen))
        drift = (sets[:, 0] - recourse.points(chosen.offset[:, 0], chosen.option[:, 0])).abs()
        kept = (drift <= ROUNDING * (1 + query.x.abs())).all(1) & ok[:, 0]
        cost = torch.where(kept.cpu(), cost, torch.nan)
        infeasible = self._infeasible(query, chosen)
        proved = torch.as_tensor(np.where(np.isfinite(bound), bound, np.nan))
        x = torch.where(ok[:, :1], sets[:, 0], torch.full_like(query.x, torch.nan))
        sets = torch.where(ok[..., None], sets, torch.full_like(sets, torch.nan))
        return Answer(
            x=x,
            sets=sets if self.flips > 1 else None,
            infeasible=infeasible.to(query.x.device) & ~ok[:, 0],
            bound=proved,
            proof=proof_of(cost, proved),
            logs={"nodes": int(chosen.nodes.max(initial=0))},
        )

    def _recourse(self, query: Query, aim: float) -> Recourse:
        return Recourse.of(
            query, aim=aim, scale=self.scale_, beta=self.beta, kind=self.cost, ranks=self.ranks_
        )

    def _solve(self, query: Query, recourse: Recourse) -> tuple[Chosen, np.ndarray]:
        """Return the choices, and lower bounds (n,) of the cost."""
        if self.cost != "max_percentile":
            chosen = cheapest_choices(
                recourse.programs, count=self.flips, nodes=self.nodes,
                expired=lambda: query.budget.expired,
            )  # fmt: skip
            return chosen, chosen.bound
        cap = _least_cap(recourse, self.nodes)
        chosen = cheapest_choices(
            recourse.capped(cap).programs, count=self.flips, nodes=self.nodes,
            expired=lambda: query.budget.expired,
        )  # fmt: skip
        return chosen, np.where(np.isfinite(chosen.bound), cap, chosen.bound)

    def _points(self, query: Query, recourse: Recourse, chosen: Chosen) -> tuple[Tensor, Tensor]:
        """Return the answers (n, f, d) as they will be seen, and which are accepted (n, f)."""
        parts, good = [], []
        for number in range(self.flips):
            x = recourse.points(chosen.offset[:, number], chosen.option[:, number])
            known = ~x.isnan().any(1)
            seen, ok = query.accept(torch.where(known[:, None], x, query.x), query.rows())
            parts.append(seen)
            good.append(known & ok)
        return torch.stack(parts, 1), torch.stack(good, 1)

    def _infeasible(self, query: Query, chosen: Chosen) -> Tensor:
        """Tell (n,) for which rows not even the smallest margin can be reached."""
        out = torch.zeros(len(query), dtype=torch.bool)
        lost = np.flatnonzero(chosen.infeasible)
        if len(lost):
            rows = torch.as_tensor(lost, device=query.x.device)
            part = self._recourse(query.select(rows), INFEASIBLE)
            again = cheapest_choices(
                part.programs, nodes=self.nodes, expired=lambda: query.budget.expired
            )
            out[torch.as_tensor(lost)] = torch.as_tensor(again.infeasible)
        return out


def _dearest(recourse: Recourse, chosen: Chosen) -> np.ndarray:
    """Return (n,) the highest price among the chosen options; infinite without an answer."""
    option = np.maximum(chosen.option[:, 0], 0)
    price = np.take_along_axis(recourse.programs.price, option[..., None], 2)[..., 0]
    return np.where(np.isfinite(chosen.cost[:, 0]), price.max(1, initial=0.0), np.inf)


def _least_cap(recourse: Recourse, nodes: int) -> np.ndarray:
    """Return (n,) the smallest highest price with which a row has an answer, by bisection."""
    price = recourse.programs.price
    flat = np.sort(np.where(np.isfinite(price), price, np.inf).reshape(len(price), -1), axis=1)
    count = np.isfinite(flat).sum(1)
    low, high = np.full(len(flat), -1), count - 1  # the cap is at a place in (low, high]
    while (high - low > 1).any():
        middle = np.where(high - low > 1, (low + high) // 2, high)
        cap = flat[np.arange(len(flat)), middle]
        fits = ~_infeasible_under(recourse.capped(cap), nodes)
        high, low = np.where(fits, middle, high), np.where(fits, low, middle)
        low = np.minimum(low, high - 1)
    return np.asarray(flat[np.arange(len(flat)), high])


def _infeasible_under(recourse: Recourse, nodes: int) -> np.ndarray:
    """Tell (n,) which programs have no choice."""
    p = recourse.programs
    if p.gap.shape[1] == 1 and not p.rules:
        best = np.where(np.isfinite(p.price)[:, None], p.gain, -np.inf).max(3).sum(2)
        return np.asarray((best < p.gap - 1e-9 * (1 + np.abs(p.gap))).any(1))
    return cheapest_choices(replace(p), nodes=nodes).infeasible
