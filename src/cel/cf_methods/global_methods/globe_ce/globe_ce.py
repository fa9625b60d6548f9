"""GLOBE-CE: one direction for everybody, one scalar for each (Ley, Mishra, Magazzeni, 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import GlobalMixin, Options
from cel.cf_methods.explanations.base import ExplanationMethod, FitSplit
from cel.cf_methods.explanations.cohort import Applied, Cohort, Learned
from cel.cf_methods.explanations.edits import BinCost
from cel.cf_methods.global_methods.globe_ce.best_directions import (
    choose_directions,
    direction_unit,
)
from cel.cf_methods.global_methods.globe_ce.directions import candidate_directions
from cel.cf_methods.global_methods.globe_ce.path import Directions, Scalars, smallest_scalars
from cel.cf_methods.query import Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.parameters import at_least
from cel.protocols import Predictor, Task
from cel.search import Budget
from cel.space import FeatureSpace

__all__ = ["GLOBECE"]

STEP = 0.2  # of the range: how far a regression target is from the prediction while fitting


@dataclass(frozen=True, kw_only=True, eq=False)
class _Directed:
    directions: Directions
    bin_cost: BinCost


class GLOBECE(GlobalMixin, ExplanationMethod):
    """Translate every row along a shared direction, just as far as it needs.

    `x' = P(x + k * delta)` with delta of unit cost in bins and k >= 0 minimal for each row. Of
    many candidate directions those are kept that help most rows at least cost.

    Args:
        model: any predictor.
        n_directions: 1 for one global direction; several let each row take the cheapest.
        n_sample: random candidate directions.
        n_features: features that a random direction moves.
        power: exponent of the random magnitudes; larger is sparser.
        generator: "hybrid" adds informed directions (difference of class means, differences to
            nearest target rows, mean gradient if there is one); "random" is the paper's.
        select: "scaled" judges a direction by the area under coverage against cost; "fixed", the
            paper's rule, by coverage at cost `magnitude`, which favours directions that saturate.
        magnitude: that cost.
        nearby: rows whose nearest target row becomes a direction.
        clip: keep numbers in the training range; the bounds of the space hold in any case.
        grid: scalars of the first search.
        bisections: halvings after it.
        fit_split: see `ExplanationMethod`.
        max_rows: see `ExplanationMethod`.
        options: settings that every method has.

    Targets of regression are reached when the prediction is within the tolerance. The direction
    is fitted for rising or falling by 20 % of the range.
    """

    name: ClassVar[str] = "globe_ce"
    tasks: ClassVar[frozenset[Task]] = frozenset(Task)
    reference: ClassVar[str] = (
        "D. Ley, S. Mishra, D. Magazzeni. GLOBE-CE: A Translation Based Approach for Global "
        "Counterfactual Explanations. ICML 2023, arXiv:2305.17021"
    )
    _test_params: ClassVar[dict[str, Any]] = {"n_sample": 100, "nearby": 20, "grid": 32}

    def __init__(
        self,
        model: Predictor,
        *,
        n_directions: int = 1,
        n_sample: int = 300,
        n_features: int = 2,
        power: float = 1.0,
        generator: Literal["hybrid", "random"] = "hybrid",
        select: Literal["scaled", "fixed"] = "scaled",
        magnitude: float = 2.0,
        nearby: int = 100,
        clip: bool = True,
        grid: int = 64,
        bisections: int = 20,
        fit_split: FitSplit = "train",
        max_rows: int | None = 2000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, fit_split=fit_split, max_rows=max_rows, **options)
        self.n_directions = n_directions
        self.n_sample = n_sample
        self.n_features = n_features
        self.power = power
        self.generator = generator
        self.select = select
        self.magnitude = magnitude
        self.nearby = nearby
        self.clip = clip
        self.grid = grid
        self.bisections = bisections

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        super()._check(model, space)
        at_least(self, 1, "n_directions", "n_sample", "nearby")
        at_least(self, 1, "n_features", "grid")
        at_least(self, 0, "power", "magnitude", "bisections")

    # -- regression: one explanation for rising, one for falling -----------------------------

    def _key_of(self, target: Tensor, y: Tensor) -> Tensor:
        return (target[:, 0] > y[:, 0]).long() if target.ndim == 2 else target

    def _predictions(self, query: Query) -> Tensor:
        regression = query.model.task is Task.REGRESSION
        return query.model.scores(query.x) if regression else query.target

    def _affected(self, key: int, train: TrainRows) -> tuple[Tensor, Tensor]:
        if train.y.ndim == 1:
            return super()._affected(key, train)
        target = train.y + (STEP if key else -STEP)
        inside = (target >= train.y.amin(0)) & (target <= train.y.amax(0))
        return inside[:, 0], target

    def _hits(self, key: int, train: TrainRows) -> Tensor:
        if train.y.ndim == 1:
            return super()._hits(key, train)
        edge = torch.quantile(train.y[:, 0].double(), 0.75 if key else 0.25)
        return train.y[:, 0] >= edge if key else train.y[:, 0] <= edge

    def _target_name(self, key: int) -> Any:
        if Task(self.model.task) is Task.REGRESSION:
            return "rise" if key else "fall"
        return super()._target_name(key)

    def _assign_target(self, key: int, X: Any) -> Any:
        if Task(self.model.task) is Task.CLASSIFICATION:
            return super()._assign_target(key, X)
        if key:
            return None
        y = self._view(Budget()).outcome(self.encoding_.encode(X)[0])
        return np.clip(y - STEP, 0.0, 1.0)

    # -- learning and applying ---------------------------------------------------------------

    def _learn(self, problem: Cohort) -> Learned:
        candidates = candidate_directions(
            problem,
            count=self.n_sample,
            n_features=self.n_features,
            power=self.power,
            informed=self.generator == "hybrid",
            nearby=self.nearby,
        )
        if not len(candidates):
            return Learned(reason="no direction is permitted: every candidate is forbidden")
        chosen = choose_directions(
            Directions.of(candidates, problem.space, problem.bin_cost),
            problem,
            count=self.n_directions,
            clip=self.clip,
            magnitude=self.magnitude if self.select == "fixed" else None,
        )
        state = _Directed(directions=chosen, bin_cost=problem.bin_cost)
        answers = self._along_all(state, problem.query)
        logs = {"candidates": len(candidates)}
        if not any(bool(a.ok.any()) for a in answers):
            reason = f"no {self.generator!r} direction reaches the target for any row"
            return Learned(reason=reason, logs=logs)
        units = tuple(
            direction_unit(problem, chosen.select([i]), answer, problem.unit_id(i))
            for i, answer in enumerate(answers)
        )
        applied = _cheapest(answers, problem.query)
        return Learned(units=units, state=state, logs=logs, applied=applied)

    def _along_all(self, state: _Directed, query: Query) -> list[Scalars]:
        return [
            smallest_scalars(
                state.directions.select([i]),
                query,
                state.bin_cost,
                clip=self.clip,
                count=self.grid,
                steps=self.bisections,
            )
            for i in range(len(state.directions))
        ]

    def _apply(self, state: _Directed, query: Query) -> Applied:
        return _cheapest(self._along_all(state, query), query)


def _cheapest(answers: list[Scalars], query: Query) -> Applied:
    cost = torch.stack([a.cost for a in answers])
    best = cost.argmin(0)
    x = torch.stack([a.x for a in answers])[best, query.rows()]
    works = cost.isfinite()
    unit = torch.where(works.any(0), best, -1)
    return Applied(x=x, unit=unit, matches=works.sum(0))
