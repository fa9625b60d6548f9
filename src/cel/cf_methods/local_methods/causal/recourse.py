"""Causal recourse: act on some features, let the consequences follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.causal.action_problem import ActionProblem, Actions
from cel.cf_methods.local_methods.causal.action_search import (
    linear_actions,
    sets_of_actions,
    tangent_actions,
)
from cel.cf_methods.local_methods.causal.category_plans import category_plans
from cel.cf_methods.local_methods.causal.doubt import Doubt
from cel.cf_methods.prepare import Prepared, encoding_of
from cel.cf_methods.query import Answer, Query, TrainRows, proof_of
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.parameters import check_positive
from cel.protocols import Need, Predictor
from cel.space import FeatureSpace
from cel.space.causal import Learnt, StructuralModel
from cel.space.distances import mad_scale
from cel.space.region import Region

__all__ = ["CausalRecourse"]

GAP = 1e-3  # of the bound: what the margin beyond the boundary may cost


class CausalRecourse(LocalMixin, BaseCounterfactualMethod):
    """Find the cheapest action whose consequences bring the wanted class.

    Features that are acted on change by an action a; the others follow from structural equations,
    `x'_j = g_j(parents') + u_j` with the noise u_j of the row (abduction, action, prediction). The
    cost is `sum |a| / scale` over actions alone: what follows from an action is free. `x_cfs`
    holds the resulting rows, `logs["action"]` what was added to which feature.

    The graph comes from `scm`, from `graph`, or from the features themselves (`Feature.parents`,
    in cards too); without any, nothing follows from anything. Features that are not `actionable`
    change as a consequence only. Actions keep bounds, directions and grids of the row's region;
    consequences keep bounds, grids and relations, but not directions. Categories are acted on or
    stay; as causes they have consequences, but they follow from nothing.

    Learnt equations are uncertain. With `caution`, an action must bring the class for most of what
    they may be: learnt `draws` times from resampled rows, the mean lead of the class in
    probability, less so many standard deviations, must not be negative.

    A feature is either cut off from its causes, or follows them: all sets of features to cut are
    compared if there are at most `max_cut`. For linear equations and a linear model each set is a
    linear program that is solved exactly; `bound` is what no action undercuts, and rows that no
    action helps are `infeasible`. Otherwise tangents of model and equations are followed.

    Args:
        model: any classifier with gradients.
        scm: a structural model in encoded coordinates.
        graph: feature -> its parents, to learn the equations of; instead of `scm`.
        equations: how they are learnt: "linear", "kernel" or "mlp".
        distance: unit of the cost: "range" of a feature, or "mad" of the training rows.
        max_cut: features that are cut in all combinations; with more, up to three at a time.
        steps: tangents per row and set, where something is not linear.
        max_switches: choices of categories that are tried for a row: all combinations, if there
            are no more, otherwise the most helpful ones. 0 leaves categories as they are.
        caution: standard deviations of what learnt equations leave open; 0 takes them as true.
        draws: equations that are learnt to know what they leave open.
        **options: see `Options`.

    References:
        Karimi, Schölkopf and Valera, Algorithmic recourse: from counterfactual explanations to
        interventions, FAccT 2021; Karimi, von Kügelgen, Schölkopf and Valera, NeurIPS 2020.
    """

    name: ClassVar[str] = "causal"
    version: ClassVar[int] = 3
    needs: ClassVar[frozenset[Need]] = frozenset({Need.GRADIENTS, Need.TRAIN_ROWS})
    reference: ClassVar[str] = "Karimi, Schölkopf and Valera, FAccT 2021, arXiv:2002.06278"
    proves: ClassVar[bool] = True
    _test_params: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        model: Predictor,
        *,
        scm: StructuralModel | None = None,
        graph: Mapping[str, Sequence[str]] | None = None,
        equations: Learnt = "linear",
        distance: Literal["range", "mad"] = "range",
        max_cut: int = 6,
        steps: int = 25,
        max_switches: int = 16,
        caution: float = 0.0,
        draws: int = 20,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.scm, self.graph, self.equations = scm, graph, equations
        self.distance, self.max_cut, self.steps = distance, max_cut, steps
        self.max_switches, self.caution, self.draws = max_switches, caution, draws

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "steps", "draws")
        check_positive(self, "max_cut", "max_switches", "caution", zero=True)
        if self.scm is not None and self.graph is not None:
            raise ConfigError("CausalRecourse: give either scm= or graph=, not both")
        if self.scm is not None and self.caution:
            raise ConfigError(
                f"CausalRecourse: caution={self.caution!r} is about equations that are learnt, "
                "and scm= gives them as certain; give graph= instead, or caution=0"
            )
        if self.scm is not None and self.scm.space.names != space.names:
            raise ConfigError(
                f"CausalRecourse: the structural model knows {self.scm.space.names}, the rows "
                f"have {space.names}; build it for the encoded space of the rows"
            )

    def _fit(self, train: TrainRows) -> None:
        space = self.space_
        graph = self.graph
        if graph is None:
            graph = {f.name: f.parents for f in space if f.parents}
        rows, kind = train.x.cpu(), self.equations
        self.scm_ = self.scm or StructuralModel.fitted(space, rows, graph, kind)
        self.doubt_ = None
        if self.caution:
            drawn = StructuralModel.resampled(
                space, rows, graph, kind, draws=self.draws, seed=self.random_state
            )
            self.doubt_ = Doubt(drawn, self.caution)
        if self.distance == "mad":
            scale = mad_scale(train.x.cpu().numpy(), space)
        else:
            width = space.vector("upper") - space.vector("lower")
            scale = np.where(np.isfinite(width) & (width > 0), width, 1.0)
        self.scale_ = torch.as_tensor(scale / space.vector("weight")).to(train.x)

    def _prepare(self, X: Any, target: Any, view: ModelView) -> Prepared:
        """Rows are judged where consequences may lie: directions bind actions alone."""
        prepared = super()._prepare(X, target, view)
        return replace(prepared, space=self._outcomes(prepared.space))

    def _outcomes(self, space: FeatureSpace) -> FeatureSpace:
        follows = self.scm_.mechanisms
        changes: dict[str, dict[str, Any]] = {
            f.name: {"actionable": None, "direction": "any"}
            for f in space
            if f.name in follows and f.mutable
        }
        return space.with_changes(**changes)

    def _explain(self, query: Query) -> Answer:
        space = encoding_of(self).space
        assert space is not None
        rows = Region.around(space, query.x)
        scale = self.scale_.to(query.x)
        problem = ActionProblem(query, rows, self.scm_, scale, self.doubt_)
        sets, whole = sets_of_actions(problem, self.max_cut)
        exact = self.scm_.is_linear and query.model.linear() is not None and not self.caution
        plans = category_plans(query, rows, self.scm_, self.max_switches)
        found = self._search(problem, sets, query.rows(), exact)
        complete = plans.complete
        for k in range(1, plans.ready.shape[1]):
            price = plans.price[:, k].masked_fill(~plans.ready[:, k], torch.inf)
            asked = price < found.cost
            if query.budget.expired:
                complete = complete & ~asked
            elif bool(asked.any()):
                part = problem.switched(plans.switch[:, k], plans.price[:, k])
                other = self._search(part, sets, asked.nonzero()[:, 0], exact)
                found = found.with_plan(other, price, asked)
        proved = torch.zeros_like(found.ok)
        bound = torch.full_like(found.cost, torch.nan)
        if exact and whole:
            bound = torch.where(complete, found.bound, bound)
            proved = found.empty & complete & ~found.ok
        stuck = rows.fixed.all(1)
        return Answer(
            x=found.x,
            infeasible=proved | stuck,
            bound=bound,
            proof=proof_of(found.cost, bound, GAP),
            row_logs={"action": self._told(found.action, found.ok, space)},
        )

    def _search(self, problem: ActionProblem, sets: Tensor, rows: Tensor, exact: bool) -> Actions:
        """Return the cheapest actions on numbers of some rows, for one choice of categories."""
        found = Actions.nothing(problem.query.x)
        if exact:
            found = linear_actions(problem, sets, rows)
        return tangent_actions(problem, sets, self.steps, found, rows)

    def _told(
        self, action: Tensor, ok: Tensor, space: FeatureSpace
    ) -> list[dict[str, float] | None]:
        """Return what was added to which feature, in encoded units, row by row."""
        names, good = space.column_names, ok.tolist()
        return [
            {names[c]: a for c, a in enumerate(row) if a} if found else None
            for row, found in zip(action.tolist(), good, strict=True)
        ]
