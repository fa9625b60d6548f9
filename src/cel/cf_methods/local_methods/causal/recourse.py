"""Causal recourse: act on some features, let the consequences follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.causal.action_search import (
    ActionProblem,
    linear_actions,
    sets_of_actions,
    tangent_actions,
)
from cel.cf_methods.prepare import Prepared, encoding_of
from cel.cf_methods.query import Answer, Query, TrainRows, proof_of
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.parameters import check_positive
from cel.protocols import Need
from cel.space import FeatureSpace
from cel.space.causal import StructuralModel
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
    consequences keep bounds, grids and relations, but not directions. Only numbers are acted on;
    categories stay, as causes.

    A feature is either cut off from its causes, or follows them: all sets of features to cut are
    compared if there are at most `max_cut`. For linear equations and a linear model each set is a
    linear program that is solved exactly; `bound` is what no action undercuts, and rows that no
    action helps are `infeasible`. Otherwise tangents of model and equations are followed.

    Args:
        model: any classifier with gradients.
        scm: a structural model in encoded coordinates.
        graph: feature -> its parents, to learn the equations of; instead of `scm`.
        equations: how they are learnt: "linear" or "kernel".
        distance: unit of the cost: "range" of a feature, or "mad" of the training rows.
        max_cut: features that are cut in all combinations; with more, up to three at a time.
        steps: tangents per row and set, where something is not linear.
        **options: see `Options`.

    References:
        Karimi, Schölkopf and Valera, Algorithmic recourse: from counterfactual explanations to
        interventions, FAccT 2021; Karimi, von Kügelgen, Schölkopf and Valera, NeurIPS 2020.
    """

    name: ClassVar[str] = "causal"
    version: ClassVar[int] = 2
    needs: ClassVar[frozenset[Need]] = frozenset({Need.GRADIENTS, Need.TRAIN_ROWS})
    reference: ClassVar[str] = "Karimi, Schölkopf and Valera, FAccT 2021, arXiv:2002.06278"
    proves: ClassVar[bool] = True
    _test_params: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        model: Any,
        *,
        scm: StructuralModel | None = None,
        graph: Mapping[str, Sequence[str]] | None = None,
        equations: Literal["linear", "kernel"] = "linear",
        distance: Literal["range", "mad"] = "range",
        max_cut: int = 6,
        steps: int = 25,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.scm, self.graph, self.equations = scm, graph, equations
        self.distance, self.max_cut, self.steps = distance, max_cut, steps

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "steps")
        check_positive(self, "max_cut", zero=True)
        if self.scm is not None and self.graph is not None:
            raise ConfigError("CausalRecourse: give either scm= or graph=, not both")
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
        self.scm_ = self.scm or StructuralModel.fitted(space, train.x.cpu(), graph, self.equations)
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
        problem = ActionProblem(query, rows, self.scm_, self.scale_.to(query.x))
        sets, complete = sets_of_actions(problem, self.max_cut)
        exact = self.scm_.is_linear and query.model.linear() is not None
        found = linear_actions(problem, sets) if exact else None
        found = tangent_actions(problem, sets, self.steps, found)
        proved = torch.zeros_like(found.ok)
        bound = torch.full_like(found.cost, torch.nan)
        if exact and complete:
            only_numbers = rows.fixed[:, ~rows.layout.numeric].all(1)
            bound = torch.where(only_numbers, found.bound, bound)
            proved = found.empty & only_numbers & ~found.ok
        stuck = rows.fixed.all(1)
        return Answer(
            x=found.x,
            infeasible=proved | stuck,
            bound=bound,
            proof=proof_of(found.cost, bound, GAP),
            row_logs={"action": self._told(found.action, found.ok, space)},
        )

    def _told(
        self, action: Tensor, ok: Tensor, space: FeatureSpace
    ) -> list[dict[str, float] | None]:
        """Return what was added to which feature, in encoded units, row by row."""
        names, good = space.column_names, ok.tolist()
        return [
            {names[c]: a for c, a in enumerate(row) if a} if found else None
            for row, found in zip(action.tolist(), good, strict=True)
        ]
