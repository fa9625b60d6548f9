"""Wachter, Mittelstadt and Russell (2018): the closest point that has the wanted outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.tangent.costs import SeparableCost
from cel.cf_methods.tangent.ladder import climb, descent, known_rows, restarts, tangents
from cel.cf_methods.tangent.margins import (
    accept_beyond,
    accept_within,
    class_margin,
    class_margins,
)
from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.cf_methods.view import ModelView
from cel.objectives import (
    ScoreLoss,
    hinge,
    margin_hinge,
    probability_gap,
    squared_error,
    squared_probability_gap,
    value_gap,
)
from cel.parameters import check_positive
from cel.protocols import Need, Predictor, Support, Task
from cel.search import Adam, Found
from cel.search.gradient import RowFunction
from cel.solvers import least_change_search
from cel.space import FeatureSpace
from cel.space.distances import mad_scale

__all__ = ["Wachter"]


class Wachter(LocalMixin, BaseCounterfactualMethod):
    """Minimise `lambda * L(f(x'), y') + d(x, x')`, with lambda raised until y' is reached.

    The distance is `sum(|x'_k - x_k| / MAD_k)` or the Euclidean one; a changed category counts 1.
    A linear model is solved exactly, against all other classes at once; otherwise the tangent of
    the model is solved exactly again and again, which leads to a stationary point of the same
    problem, with changes of categories tried one by one. Rows for which that fails go through the
    descent of the paper: Adam with the proximal map of the distance, lambda bracketed and
    bisected for each row, categories relaxed to simplices.

    Args:
        model: any model with gradients.
        distance: "l1_mad" (the paper's) or "l2".
        loss: "logit_hinge2", max(0, kappa - margin)^2 of the logits, or the paper's
            "squared_prob", (1 - p)^2, whose gradient vanishes on saturated models.
        lambda_mode: "search", or "fixed" for one descent with `lam`.
        solver: "auto", or "gradient" for the descent alone.
        lam: first lambda.
        kappa: margin that the hinge asks for; must lie beyond the margin of acceptance, or no
            finite lambda reaches the boundary.
        eps: distance to the wanted value that regression aims for, in units of the range; rows
            that cannot come so near are found if they are within `tolerance`.
        rounds: lambdas tried per row.
        steps: descent steps per lambda, and half as many tangents.
        lr: step size of Adam.
        restarts: other starting points (training rows of the target class) for unanswered rows.
        options: see `Options`.

    References:
        Wachter, Mittelstadt and Russell: Counterfactual explanations without opening the black
        box. Harvard Journal of Law & Technology 31, 2018.
    """

    name = "wachter"
    version: ClassVar[int] = 3
    tasks = frozenset({Task.CLASSIFICATION, Task.REGRESSION})
    needs = frozenset({Need.GRADIENTS, Need.TRAIN_ROWS})
    supports = frozenset(Support)
    reference = "Wachter, Mittelstadt and Russell, Harvard JOLT 31, 2018"
    _test_params: ClassVar[dict[str, Any]] = {"rounds": 3, "steps": 40}

    def __init__(
        self,
        model: Predictor,
        *,
        distance: Literal["l1_mad", "l2"] = "l1_mad",
        loss: Literal["logit_hinge2", "squared_prob"] = "logit_hinge2",
        lambda_mode: Literal["search", "fixed"] = "search",
        solver: Literal["auto", "gradient"] = "auto",
        lam: float = 1.0,
        kappa: float = 1.0,
        eps: float = 0.01,
        rounds: int = 6,
        steps: int = 100,
        lr: float = 0.05,
        restarts: int = 8,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.distance, self.loss, self.lambda_mode = distance, loss, lambda_mode
        self.solver, self.lam, self.kappa, self.eps = solver, lam, kappa, eps
        self.rounds, self.steps, self.lr, self.restarts = rounds, steps, lr, restarts

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "lam", "kappa", "eps", "rounds", "steps", "lr")

    def _require_fit(self) -> None:
        if self.distance == "l1_mad":
            super()._require_fit()

    def _fit(self, train: TrainRows) -> None:
        x = train.x.cpu().numpy()
        self.scale_ = torch.as_tensor(mad_scale(x, self.space_)).to(train.x)
        moving = (x.max(0) > x.min(0)) if len(x) else (x.sum(0) == 0)
        owner = self.space_.owner
        self.constant_ = torch.ones(len(self.space_), dtype=torch.bool)
        self.constant_[torch.as_tensor(owner[moving])] = False

    def _explain(self, query: Query) -> Answer | Tensor:
        if hasattr(self, "constant_"):
            query = replace(query, region=query.region.freeze(self.constant_))
        if query.model.task is Task.CLASSIFICATION:
            return self._solve(self._classes(query))
        close = self._values(query, min(self.eps, self.tolerance))
        answer = self._solve(close, thorough=self.eps >= self.tolerance)
        todo = answer.x.isnan().any(1).nonzero()[:, 0]
        if not len(todo):
            return answer
        loose = self._solve(self._values(query.select(todo), self.tolerance))
        infeasible = torch.zeros_like(query.x[:, 0], dtype=torch.bool)
        infeasible[todo] = False if loose.infeasible is None else loose.infeasible
        return Answer(x=answer.x.index_copy(0, todo, loose.x), infeasible=infeasible)

    # -- the problem -------------------------------------------------------------------------

    def _cost(self, query: Query) -> SeparableCost:
        l1 = self.distance == "l1_mad"
        weight = 1 / self.scale_.to(query.x) if l1 else 0.0
        return SeparableCost.around(query.region, l1=weight, l2=not l1, change=1.0, center=query.x)

    def _classes(self, query: Query) -> NearestPoint:
        return NearestPoint(
            query=query,
            cost=self._cost(query),
            margins=class_margins(query),
            accept=accept_beyond(query),
        )

    def _values(self, query: Query, eps: float) -> NearestPoint:
        """One output is approached from its side; several are judged by the largest miss."""
        model, target = query.model, query.target
        side = (target - model.scores(query.x)).sign()

        def margins(x: Tensor, rows: Tensor) -> Tensor:
            miss = (target[rows] - model.logits(x)) * side[rows]
            return eps - (miss if miss.shape[1] == 1 else miss.abs()).amax(-1, keepdim=True)

        return NearestPoint(
            query=query, cost=self._cost(query), margins=margins,
            accept=accept_within(query, eps), aim=0.05 * eps,
        )  # fmt: skip

    def _loss(self, query: Query) -> RowFunction:
        model, target = query.model, query.target
        if model.task is Task.REGRESSION:
            return lambda x, rows: squared_error(model.logits(x), target[rows])
        if self.loss == "squared_prob":
            return lambda x, rows: squared_probability_gap(model.logits(x), target[rows])
        margin = class_margin(query)
        return lambda x, rows: hinge(margin(x, rows), self.kappa, power=2)

    def _slope(self, query: Query) -> ScoreLoss:
        if query.model.task is Task.REGRESSION:
            return value_gap
        return probability_gap if self.loss == "squared_prob" else margin_hinge(self.kappa, 2)

    # -- the search --------------------------------------------------------------------------

    def _solve(self, problem: NearestPoint, *, thorough: bool = True) -> Answer:
        if self.lambda_mode == "fixed":
            return Answer(x=self._descend(problem, 1).x)
        if self.solver == "gradient":
            return climb(problem, [lambda part: self._descend(part, self.rounds)], exact=False)
        half, model = self.steps // 2, problem.query.model
        several = model.task is Task.REGRESSION and model.n_outputs > 1
        others = known_rows(getattr(self, "train_", None), self.restarts)
        rungs = [self._several_outputs if several else tangents(half), restarts(others, half)]
        if thorough:
            rungs.append(descent(lambda part: self._descend(part, self.rounds), half))
        return climb(problem, rungs)

    def _descend(self, problem: NearestPoint, rounds: int) -> Found:
        return problem.descend(
            self._loss(problem.query),
            slope=self._slope(problem.query),
            stepper=Adam(self.lr, prox=problem.cost.prox),
            weight=self.lam,
            rounds=rounds,
            steps=self.steps,
        )

    def _several_outputs(self, problem: NearestPoint) -> Found:
        query, lay = problem.query, problem.query.region.layout
        return least_change_search(
            lambda x, rows: query.model.logits(x),
            query.target,
            center=query.x,
            lower=torch.where(lay.numeric, query.region.lower, query.x),
            upper=torch.where(lay.numeric, query.region.upper, query.x),
            accept=problem.accept,
            cost=problem.cost.value,
            scale=self.scale_.to(query.x) if self.distance == "l1_mad" else None,
            steps=20,
            budget=query.budget,
        )
