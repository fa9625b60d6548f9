"""ROAR (Upadhyay, Joshi and Lakkaraju, 2021): answers that survive a shift of the model."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Unpack

import torch

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.tangent.ladder import climb, known_rows, restarts, tangents
from cel.cf_methods.tangent.robust import keeping_relations, robust_problem, shifted_margins
from cel.cf_methods.view import ModelView
from cel.parameters import check_positive
from cel.protocols import Need, Predictor, Support
from cel.space import FeatureSpace
from cel.space.distances import mad_scale

__all__ = ["ROAR"]


class ROAR(LocalMixin, BaseCounterfactualMethod):
    """Minimise the distance subject to the wanted class under the worst shift of the model.

    The publication alternates between an adversary, who shifts the weights by at most `delta`, and
    a descent on the answer. For a linear score the adversary has a closed form, and the problem
    left is convex: the nearest point with `w.x' + b - delta (|x'|_1 + 1) >= 0`. Linear models on
    columns that are not negative are solved exactly; others through the tangents of the model,
    whose shifts are those of the tangent's own weights.

    A row is found only if its answer keeps the class under every such shift; with linear models
    `infeasible` means that no point of the row's region does.

    Args:
        model: any classifier with gradients.
        delta: largest shift of a weight, in logits per unit of an encoded column.
        ball: "linf", every weight by at most delta, or "l2", all together.
        distance: "l1" or "l1_mad", columns in units of their spread.
        steps: tangents per row.
        restarts: other starting points (training rows of the target class) for unanswered rows.
        options: see `Options`.

    References:
        Upadhyay, Joshi and Lakkaraju: Towards robust and reliable algorithmic recourse.
        NeurIPS 2021.
    """

    name = "roar"
    version = 2
    infeasible_means = "no allowed row keeps the class under every such shift of the model"
    needs = frozenset({Need.GRADIENTS, Need.TRAIN_ROWS})
    supports = frozenset(Support) - {Support.MULTIOUTPUT}
    reference = "Upadhyay, Joshi and Lakkaraju, NeurIPS 2021, arXiv:2102.13620"
    _test_params: ClassVar[dict[str, Any]] = {"steps": 20}

    def __init__(
        self,
        model: Predictor,
        *,
        delta: float = 0.02,
        ball: Literal["linf", "l2"] = "linf",
        distance: Literal["l1", "l1_mad"] = "l1",
        steps: int = 50,
        restarts: int = 8,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.delta, self.ball, self.distance = delta, ball, distance
        self.steps, self.restarts = steps, restarts

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "steps")
        check_positive(self, "delta", "restarts", zero=True)

    def _fit(self, train: TrainRows) -> None:
        scale = mad_scale(train.x.cpu().numpy(), self.space_)
        self.scale_ = torch.as_tensor(scale).to(train.x)

    def _explain(self, query: Query) -> Answer:
        margins = shifted_margins(query, self.delta, self.ball)
        unit = self.scale_.to(query.x) if self.distance == "l1_mad" else 1.0
        problem = robust_problem(query, margins, unit)
        linear = self.ball == "linf" and bool((query.region.lower >= 0).all())
        rungs = [
            tangents(self.steps),
            keeping_relations(self.steps),
            restarts(known_rows(self.train_, self.restarts), self.steps),
        ]
        answer = climb(problem, rungs, exact=linear or not self.delta)
        rows = (~answer.x.isnan().any(1)).nonzero()[:, 0]
        worst = torch.full_like(query.x[:, 0], torch.nan)
        if len(rows):
            with torch.no_grad():
                worst[rows] = margins(answer.x[rows], rows).amin(1)
        told = [None if math.isnan(m) else m for m in worst.tolist()]
        return Answer(x=answer.x, infeasible=answer.infeasible, row_logs={"robust_margin": told})
