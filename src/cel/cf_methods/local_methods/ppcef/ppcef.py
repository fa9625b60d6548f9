"""PPCEF (Wielopolski et al., 2024): close, valid, and as probable as real rows of the class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.ppcef.descent import Pace, descend_once
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.tangent.category_distances import category_distances
from cel.cf_methods.tangent.costs import SeparableCost
from cel.cf_methods.tangent.ladder import climb, descent, restarts, tangents
from cel.cf_methods.tangent.margins import class_margins
from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.cf_methods.tangent.plausible import DensityDemand, class_thresholds, levels_of
from cel.cf_methods.tangent.prototypes import nearest_rows
from cel.cf_methods.view import ModelView
from cel.models.generative.levels import DensityLevels, log_density_of
from cel.parameters import check_positive, check_shares
from cel.protocols import DensityModel, Need, Predictor, Support
from cel.search import Found
from cel.space import FeatureSpace

__all__ = ["PPCEF"]

POLISH = 15  # tangents
ROUNDED = 2  # tangents where points are rounded, which undoes most of what more of them bring
MANY = 128  # plausible rows tried for rows that are hard to answer
SEVERAL = 16  # the same where points are rounded and there are no categories


class PPCEF(LocalMixin, BaseCounterfactualMethod):
    """Minimise `|x' - x|_2 + alpha (L_v + L_p)` under a class-conditional density.

    `L_v = max(0, max_{k != t} p_k + epsilon - p_t)` asks for validity and
    `L_p = max(0, delta - log p(x' | t))` for plausibility; delta is a quantile of the
    log-densities of training rows of class t, the same one that the metric `prob_plausibility`
    asks for. Found rows satisfy both on the decoded point.

    By default the two demands are met as constraints of the same problem, through tangents of
    the model and of the log-density. Rows for which that fails and changes of categories go
    through the descent of the paper (Adam, alpha raised where it does not suffice) and through
    plausible training rows of the target class, moved towards the row as far as both demands
    hold, so that a row is answered whenever such a training row is feasible for it.

    Args:
        model: any classifier with gradients.
        gen_model: density with `log_prob(x, context)`, trained on encoded rows and classes.
        quantile: of the log-densities that counts as plausible. 0.5 is the paper's text; the
            printed benchmark ran 0.25.
        init: "row", or "nearest_plausible" to start every row from a plausible training row.
        solver: "auto", or "gradient" for the descent of the paper alone.
        alpha: weight of both demands; 0 switches them off, and nothing is found.
        epsilon: by how much p_t shall exceed the best other probability in the descent.
        levels: log-densities of training rows from which delta follows, when they are known
            already; by default those of all rows of `fit`, kept for validation or not.
        threshold_shift: added to delta, only to reproduce variants of the threshold.
        rounds: values of alpha tried per row.
        steps: descent steps per alpha.
        lr: step size of Adam.
        starts: plausible training rows tried per row.
        options: see `Options`.

    References:
        Wielopolski, Furman, Stefanowski and Zieba: Probabilistically plausible counterfactual
        explanations with normalizing flows. ECAI 2024.
    """

    name = "ppcef"
    version: ClassVar[int] = 7
    needs = frozenset({Need.GRADIENTS, Need.DENSITY, Need.TRAIN_ROWS})
    supports = frozenset(Support) - {Support.MULTIOUTPUT}
    reference = "Wielopolski, Furman, Stefanowski and Zieba, ECAI 2024"
    _copies: ClassVar[int] = 80
    _test_params: ClassVar[dict[str, Any]] = {"steps": 30, "rounds": 1, "lr": 0.04}

    def __init__(
        self,
        model: Predictor,
        *,
        gen_model: DensityModel,
        quantile: float = 0.5,
        init: Literal["row", "nearest_plausible"] = "row",
        solver: Literal["auto", "gradient"] = "auto",
        alpha: float = 100.0,
        epsilon: float = 0.02,
        levels: DensityLevels | None = None,
        threshold_shift: float = 0.0,
        rounds: int = 2,
        steps: int = 100,
        lr: float = 0.02,
        starts: int = 4,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.gen_model, self.quantile, self.init, self.solver = gen_model, quantile, init, solver
        self.alpha, self.epsilon, self.threshold_shift = alpha, epsilon, threshold_shift
        self.levels = levels
        self.rounds, self.steps, self.lr, self.starts = rounds, steps, lr, starts

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "rounds", "steps", "lr", "starts")
        check_positive(self, "alpha", "epsilon", zero=True)
        check_shares(self, ("quantile",), closed=True)

    def _fit(self, train: TrainRows) -> None:
        x, y = train.x.cpu().numpy(), train.y.cpu().numpy()
        view = ModelView(self.model)
        self.levels_ = self.levels or levels_of(self.gen_model, train, view)
        level = class_thresholds(self.levels_, self.quantile, view.n_outputs)
        self.threshold_ = torch.as_tensor(level).to(train.x) + self.threshold_shift
        self.spread_ = self.levels_.spread
        logp = torch.as_tensor(log_density_of(self.gen_model, x, y)).to(train.x)
        self.plausible_ = logp >= self.threshold_[train.y]
        self.categories_ = category_distances("hamming", train.x, train.y, self.space_)

    def _explain(self, query: Query) -> Answer | Tensor:
        if not self.alpha:
            return torch.full_like(query.x, torch.nan)
        cost = SeparableCost.around(query.region, l1=0.0, l2=True, change=1.0, center=query.x)
        cost = replace(cost, lean=True)
        demand = self._demand(query)
        problem = NearestPoint(
            query=query,
            cost=cost,
            margins=class_margins(query),
            accept=demand.accept(),
            also=(demand.surplus,),
        )
        if self.solver == "gradient":
            return self._descend(problem).x
        steps, many = POLISH, MANY
        if problem.is_discrete and not problem.has_categories:
            steps, many = ROUNDED, SEVERAL
        first = descent(self._descend, steps)
        if problem.has_categories:
            first = tangents(steps, together=True)
        later = restarts(self._rows(self.starts), 2 * steps, self._rows(many))
        rungs = [first, later] if self.init == "row" else [later]
        return climb(problem, rungs, exact=False, finish=_finish)

    def _demand(self, query: Query) -> DensityDemand:
        level = self.threshold_.to(query.x)[query.target]
        return DensityDemand(
            query=query, density=self.gen_model, level=level, spread=self.spread_, once=True
        )

    # -- the search --------------------------------------------------------------------------

    def _rows(self, count: int) -> Callable[[Query], Tensor]:
        return lambda query: self._starts(query, count)

    def _starts(self, query: Query, count: int) -> Tensor:
        """Return (n, count, d) plausible training rows of the target class, nearest first."""
        pool, labels = self.train_.x[self.plausible_], self.train_.y[self.plausible_]
        rows = nearest_rows(
            query.x, query.target, pool, labels, query.region.layout.numeric,
            self.categories_.to(query.x), count,
        )  # fmt: skip
        return torch.where(rows.isnan(), query.x[:, None], rows)

    def _descend(self, problem: NearestPoint) -> Found:
        """Descend from the rows; where that fails, from half way to plausible training rows."""
        found = Found.nothing(problem.query.x)
        for number in range(self.rounds):
            todo = (~found.ok).nonzero()[:, 0]
            if not len(todo) or problem.query.budget.expired:
                break
            part = problem.on(todo)
            starts = part.query.x[:, None]
            if number:
                starts = starts + 0.5 / number * (self._starts(part.query, self.starts) - starts)
            many = part.on(torch.arange(len(todo)).to(todo).repeat_interleave(starts.shape[1]))
            pace = Pace.alone(self.steps, number)
            if self.solver == "auto" and problem.is_discrete:
                pace = Pace.ahead(self.steps, number, starts.shape[1])
            tried = descend_once(
                self, many, self._demand(many.query), starts.flatten(0, 1), number, pace
            )
            best = tried.cost.reshape(len(todo), -1).argmin(1)
            best = best + starts.shape[1] * torch.arange(len(todo)).to(todo)
            found.put_better(todo, tried.select(best))
        return found


def _finish(problem: NearestPoint, found: Found) -> Found:
    return problem.finish(found, whole_features=problem.has_categories)
